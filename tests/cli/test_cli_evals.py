"""`ninfer evals` on micro artifacts: a noisy model's outcomes, kept, resumed and compared."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ninfer.artifact import Artifact
from ninfer.cli import eval_engine, main
from ninfer.engine.loader import read_config
from ninfer.evals import read_results
from ninfer.models import ModelConfig


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main(["evals", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def item_of(number: int, task: str, content: Any, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"{task}/{number}",
        "task": task,
        "messages": [{"role": "user", "content": content}],
        "max_new": 6,
        "grade": {"kind": "number", "answer": 5},
        **changes,
    }


def write_task(folder: Path, task: str, items: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(item) + "\n" for item in items)
    (folder / f"{task}.jsonl").write_text(text)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    sums = [item_of(n, "sums", f"{n} + {n}?", thinking=n % 2 == 0) for n in range(5)]
    write_task(folder, "sums", sums)
    function = {"name": "clock", "parameters": {"type": "object", "properties": {}}}
    calls = {"kind": "tool_calls", "calls": [{"name": "clock", "arguments": {}}]}
    tools = [{"type": "function", "function": function}]
    asked = item_of(0, "tools", "What time is it?", tools=tools, grade=calls)
    write_task(folder, "tools", [asked])
    return folder


def picture_item() -> dict[str, Any]:
    data = BytesIO()
    Image.new("RGB", (64, 64), "red").save(data, "PNG")
    uri = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
    parts = [
        {"type": "image_url", "image_url": {"url": uri}},
        {"type": "text", "text": "Which colour?"},
    ]
    return item_of(0, "look", parts, grade={"kind": "exact", "answer": "red"})


def rows_of(out: str) -> dict[str, list[str]]:
    lines = [line.split() for line in out.splitlines() if line.strip()]
    return {words[0]: words[1:] for words in lines}


def test_a_suite_is_answered_and_scored(
    capsys: pytest.CaptureFixture[str],
    micro_artifacts: dict[str, Path],
    suite: Path,
    tmp_path: Path,
) -> None:
    write_task(suite, "look", [picture_item()])
    path = tmp_path / "r.jsonl"
    common = ["run", micro_artifacts["dense"], "--suite", suite, "--device", "cpu"]
    status, out, err = call(capsys, *common, "-o", path, "--concurrency", 3)
    assert status == 0
    rows = rows_of(out)
    assert rows["sums"] == ["5", "0.0%", "0.0%", "..", "43.4%", "0.0%", "6.0"]
    assert [rows[name][0] for name in ("look", "tools", "all")] == ["1", "1", "7"]
    header, outcomes = read_results(path)
    assert (header.suite, header.artifact) == ("mine", "dense.ninfer")
    assert len(header.model) == 64 and header.settings["device"] == "cpu"
    assert outcomes["sums/0"].answer.reasoning_tokens == 6
    assert outcomes["sums/1"].answer.reasoning_tokens == 0 and outcomes["sums/1"].answer.content
    assert outcomes["tools/0"].reasons == ("ended by output_limit",)
    # No rate is shown without a verdict on what was generated.
    assert "tok/s" not in out + err

    # One item at a time the answers are the same, and everything in the file is taken from it.
    alone = tmp_path / "alone.jsonl"
    options = ["--concurrency", 1, "--max-context", 3000, "--json"]
    status, out, _ = call(capsys, *common, "-o", alone, *options)
    assert status == 0 and json.loads(out)["overall"]["items"] == 7
    found = read_results(alone)[1]
    assert {n: o.answer.token_ids for n, o in found.items()} == {
        n: o.answer.token_ids for n, o in outcomes.items()
    }
    before = path.read_bytes()
    assert call(capsys, *common, "-o", path)[0] == 0
    assert path.read_bytes() == before

    status, out, _ = call(capsys, "compare", path, alone)
    assert status == 0
    assert rows_of(out)["all"] == ["7", "0.0%", "0.0%", "+0.0", "0", "0", "1.000"]
    deltas = json.loads(call(capsys, "compare", path, alone, "--json")[1])
    assert [row["task"] for row in deltas] == ["look", "sums", "tools", "all"]


def test_only_what_is_missing_is_asked_for(
    capsys: pytest.CaptureFixture[str],
    micro_artifacts: dict[str, Path],
    suite: Path,
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.jsonl"
    common = ["run", micro_artifacts["dense"], "--suite", suite, "--device", "cpu", "-o", path]
    assert call(capsys, *common, "--task", "sums", "--limit", 2)[0] == 0
    first = path.read_text().splitlines()
    assert [json.loads(line)["id"] for line in first[1:]] == ["sums/0", "sums/1"]
    status, out, _ = call(capsys, *common)
    assert status == 0 and rows_of(out)["all"][0] == "6"
    lines = path.read_text().splitlines()
    assert lines[:3] == first and len(lines) == 7
    status = main(["evals", *map(str, common), "--activations", "bf16"])
    assert status == 1 or status == 2
    assert "holds results of another settings" in capsys.readouterr().err


def test_right_answers_are_found_right(
    capsys: pytest.CaptureFixture[str], micro_artifacts: dict[str, Path], tmp_path: Path
) -> None:
    """A noisy model is held to its own words: the grade sees what the model said, and its end."""
    folder = tmp_path / "echo"
    folder.mkdir()
    items = [item_of(n, "echo", f"word {n}", max_new=40) for n in (0, 7, 12, 14)]
    write_task(folder, "echo", items)
    path, common = tmp_path / "r.jsonl", ["--suite", folder, "--device", "cpu", "--json"]
    assert call(capsys, "run", micro_artifacts["dense"], *common, "-o", path)[0] == 0
    answers = {name: outcome.answer for name, outcome in read_results(path)[1].items()}
    ended = [name for name, answer in answers.items() if answer.is_natural]
    assert ended and all(answers[name].content.strip() for name in ended)
    for item in items:
        item["grade"] = {"kind": "exact", "answer": answers[item["id"]].content}
    write_task(folder, "echo", items)
    status, out, _ = call(capsys, "run", micro_artifacts["dense"], *common)
    scores = json.loads(out)["overall"]
    assert status == 0
    assert scores["right"] == scores["natural"] == len(ended)


def test_acceptance_is_counted_by_task_and_position(
    capsys: pytest.CaptureFixture[str],
    micro_artifacts: dict[str, Path],
    suite: Path,
    tmp_path: Path,
) -> None:
    path = tmp_path / "counts.json"
    common = ["acceptance", micro_artifacts["moe"], "--suite", suite, "--device", "cpu"]
    for spec, source, drafts in (("mtp", "mtp", 3), ("dflash", "block", 4)):
        options = ["--spec", spec, "--draft-tokens", drafts, "-o", path]
        status, out, _ = call(capsys, *common, *options)
        assert status == 0
        assert f"#{drafts}" in out and f"#{drafts + 1}" not in out
        document = json.loads(path.read_text())
        assert (document["spec"], document["draft_tokens"]) == (spec, drafts)
        sums, tools = document["tasks"]
        assert (sums["task"], sums["tokens"], tools["task"], tools["tokens"]) == (
            "sums",
            25,
            "tools",
            5,
        )
        for task in (sums, tools):
            counts = task["sources"][source]
            assert len(counts["judged"]) == drafts
            assert counts["judged"] == sorted(counts["judged"], reverse=True)
            assert counts["accepted"] == sorted(counts["accepted"], reverse=True)
            assert 0 < counts["judged"][0] <= task["passes"] <= task["tokens"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "ARTIFACT"], "--suite NAME is missing"),
        (["run", "ARTIFACT", "--suite", "none"], "--suite none: neither a suite (known:"),
        (["run", "ARTIFACT", "--suite", "SUITE", "--task", "x"], "--task x: suite mine has"),
        (["run", "ARTIFACT", "--suite", "SUITE", "--limit", "0"], "--limit 0: must be positive"),
        (["run", "ARTIFACT", "--suite", "SUITE", "--concurrency", "65"], "must be 1..64"),
        (
            ["run", "ARTIFACT", "--suite", "SUITE", "--max-context", "20"],
            "--max-context 20: item tools/0 may need",
        ),
        (
            ["run", "ARTIFACT", "--suite", "SUITE", "--task", "look", "--text-only"],
            "no item is left to ask",
        ),
        (["run", "none.ninfer", "--suite", "SUITE"], "none.ninfer"),
        (["acceptance", "ARTIFACT", "--suite", "SUITE"], "--spec NAME is missing"),
        (["compare", "a.jsonl", "b.jsonl"], "a.jsonl: No such file"),
        (["compare", "a.jsonl"], "SECOND"),
        (["score"], "invalid choice: 'score'"),
    ],
)
def test_refusals(
    capsys: pytest.CaptureFixture[str],
    micro_artifacts: dict[str, Path],
    suite: Path,
    arguments: list[str],
    message: str,
) -> None:
    write_task(suite, "look", [picture_item()])
    places = {"ARTIFACT": micro_artifacts["dense"], "SUITE": suite}
    status, out, err = call(capsys, *(places.get(word, word) for word in arguments))
    assert status in (1, 2) and out == ""
    assert message in err and len(err.splitlines()) == 1


def test_pictures_need_a_tower(
    capsys: pytest.CaptureFixture[str],
    micro_artifacts: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    suite: Path,
) -> None:
    def blind(artifact: Artifact) -> ModelConfig:
        return replace(read_config(artifact), vision=None)

    monkeypatch.setattr(eval_engine, "read_config", blind)
    write_task(suite, "look", [picture_item()])
    common = ["run", micro_artifacts["dense"], "--suite", suite, "--device", "cpu"]
    status, _, err = call(capsys, *common)
    assert status == 2
    assert "has no vision tower, and the suite shows images or videos; add --text-only" in err
    status, out, _ = call(capsys, *common, "--text-only")
    assert status == 0 and set(rows_of(out)) >= {"sums", "tools", "all"} and "look" not in out


def test_a_prompt_that_cannot_be_asked_is_named_before_the_first_answer(
    capsys: pytest.CaptureFixture[str],
    micro_artifacts: dict[str, Path],
    suite: Path,
    tmp_path: Path,
) -> None:
    broken = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    write_task(suite, "zzz", [item_of(0, "zzz", broken)])
    path = tmp_path / "r.jsonl"
    common = ["run", micro_artifacts["dense"], "--suite", suite, "--device", "cpu", "-o", path]
    status, out, err = call(capsys, *common)
    assert (status, out) == (1, "") and "item zzz/0: messages[0].content[0]" in err
    assert len(path.read_text().splitlines()) == 1


def test_listing(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "list")
    assert status == 0 and "suite" in out and "items" in out


def test_ctrl_c_leaves_whole_lines_and_says_how_to_go_on(
    micro_artifacts: dict[str, Path], tmp_path: Path
) -> None:
    folder, path = tmp_path / "long", tmp_path / "r.jsonl"
    folder.mkdir()
    write_task(folder, "long", [item_of(n, "long", f"word {n}", max_new=40) for n in range(400)])
    command = [sys.executable, "-m", "ninfer", "evals", "run", str(micro_artifacts["dense"])]
    command += ["--suite", str(folder), "--device", "cpu", "-o", str(path), "--concurrency", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # A test run in the background may have inherited an ignored signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        deadline = time.monotonic() + 120
        while not path.exists() or len(path.read_bytes().splitlines()) < 4:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    done = len(read_results(path)[1])
    assert process.returncode == 130
    assert f"{done} of 400 outcomes are in {path}; the same command goes on" in err
    assert "Traceback" not in err and 3 <= done < 400
