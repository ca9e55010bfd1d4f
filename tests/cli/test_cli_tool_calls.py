"""`ninfer run` with tools: calls are lines of JSON on stdout."""

import json
from pathlib import Path

import pytest

import ninfer.engine.engine as engine_module
from ninfer.cli import main
from ninfer.cli.output import AnswerPrinter
from ninfer.request import TextDelta, ToolCall, ToolCallSpec, ToolRule, Usage


def test_calls_are_json_lines_on_stdout_that_messages_can_hold(
    capsys: pytest.CaptureFixture[str],
    micro_artifacts: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise, forced into the form of calls, is printed; then the calls are sent back."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}}
    schema["required"] = ["n"]
    spec = ToolCallSpec((ToolRule("f", schema, strict=True),), required=True, parallel=False)
    monkeypatch.setattr(engine_module, "constraint_spec", lambda options: spec)
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    messages = [{"role": "user", "content": "Call it."}]
    path = tmp_path / "messages.json"
    options = ["--messages", path, "--no-thinking", "--max-new", 120, "--device", "cpu"]
    path.write_text(json.dumps({"messages": messages, "tools": [tool]}))
    arguments = ["run", *map(str, (micro_artifacts["dense"], *options))]
    status = main(arguments)
    out, err = capsys.readouterr()
    assert status == 0 and "finish: stop_token" in err
    calls = [json.loads(line) for line in out.splitlines()]
    assert [item["function"]["name"] for item in calls] == ["f"]
    assert all(isinstance(item["function"]["arguments"]["n"], int) for item in calls)
    messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    messages.append({"role": "tool", "content": "done", "tool_call_id": calls[0]["id"]})
    path.write_text(json.dumps({"messages": messages, "tools": [tool]}))
    assert main(arguments) == 0


def test_a_call_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with AnswerPrinter() as printer:
        printer.show(TextDelta("reasoning", "hm"))
        printer.show(TextDelta("content", "Let me look."))
        printer.show_call(ToolCall("f", {"a": "é\n"}, "call_1"))
        printer.show_call(ToolCall("f", {}, "call_2"))
        printer.end(Usage(1, 9, 9))
    captured = capsys.readouterr()
    assert captured.err == "hm\n"
    text, *lines = captured.out.splitlines()
    assert text == "Let me look."
    assert [json.loads(line)["function"]["arguments"] for line in lines] == [{"a": "é\n"}, {}]
