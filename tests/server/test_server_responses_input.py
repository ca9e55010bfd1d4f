"""What the input of Responses may hold, and what of it reaches the model."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving import Server, serving

from ninfer.errors import RequestError
from ninfer.request import PreparedPrompt
from ninfer.server.body import checked
from ninfer.server.responses.ask import understand
from ninfer.server.responses.items import sealed, unsealed
from ninfer.server.responses.schema import ResponsesBody

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    with serving(micro_artifacts["dense"], engine={"max_context": 4096, "vision": True}) as running:
        yield running


def prompt_of(server: Server, given: Any, **members: Any) -> PreparedPrompt:
    """What the model would be asked."""
    body = checked(ResponsesBody, {"input": given, **members})
    return server.engine.prepare(understand(body, server.service, 0).conversation)


def message(role: str, *texts: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content}


def made(call_id: str, name: str = "f", arguments: str = "{}", **more: Any) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    return {**call, **more}


def output(call_id: str, text: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def thought(text: str | None, **more: Any) -> dict[str, Any]:
    content = None if text is None else [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content, **more}


def test_instructions_and_developers_lead(server: Server) -> None:
    given = [
        message("developer", "one"),
        message("developer", "two"),
        message("user", "context"),
        message("user", "task"),
    ]
    text = prompt_of(server, given, instructions="zero").text
    assert text == (
        "<|im_start|>system\nzero\n\none\n\ntwo<|im_end|>\n<|im_start|>user\ncontext<|im_end|>\n"
        "<|im_start|>user\ntask<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )


def test_pictures_in_messages_and_outputs_reach_the_model(server: Server) -> None:
    """C7, C8."""
    file = io.BytesIO()
    Image.fromarray(np.full((64, 96, 3), 90, np.uint8)).save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    image = {"type": "input_image", "image_url": url, "detail": "auto"}
    given = [
        {"role": "user", "content": [{"type": "input_text", "text": "q"}, image]},
        made("c1"),
        output("c1", [{"type": "input_text", "text": "shot"}, image]),
    ]
    prompt = prompt_of(server, given, tools=[TOOL])
    assert len(prompt.media) == 2
    assert "<tool_response>\nshot<|vision_start|><|image_pad|>" in prompt.text
    image["image_url"] = "data:image/svg+xml;base64,PHN2Zy8+"
    reply = server.post("/v1/responses", {"input": given, "tools": [TOOL]})
    assert reply.json()["error"]["code"] == "invalid_media"
    assert reply.json()["error"]["param"] == "input[0].content[1]"


def test_a_text_and_an_item_without_a_type_are_the_same(server: Server) -> None:
    plain = prompt_of(server, "q").text
    assert prompt_of(server, [{"role": "user", "content": "q"}]).text == plain


def test_items_of_one_answer_are_one_turn(server: Server) -> None:
    given = [
        message("user", "q"),
        thought("R"),
        message("assistant", "on it"),
        made("c1", arguments='{"k": [1, 2.5]}'),
        made("c2"),
        output("c2", "second"),
        output("c1", [{"type": "input_text", "text": "first"}]),
        thought("S"),
        message("assistant", "done"),
    ]
    text = prompt_of(server, given, tools=[TOOL]).text
    assert (
        "<|im_start|>assistant\n<think>\nR\n</think>\n\non it\n\n<tool_call>\n<function=f>\n"
        "<parameter=k>\n[1, 2.5]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
        "<function=f>\n</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n"
        "first\n</tool_response>\n<tool_response>\nsecond\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\nS\n</think>\n\ndone<|im_end|>\n" in text
    )


def test_answers_in_a_row_stay_apart(server: Server) -> None:
    given = [message("user", "q"), message("assistant", "a"), message("assistant", "b")]
    text = prompt_of(server, [*given, message("user", "r")]).text
    assert "assistant\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>" in text


def test_a_call_without_an_output_is_shown(server: Server) -> None:
    given = [message("user", "q"), made("c1"), message("user", "stop that")]
    text = prompt_of(server, given, tools=[TOOL]).text
    assert "</tool_call><|im_end|>\n<|im_start|>user\nstop that<|im_end|>" in text


def test_an_output_without_a_call_is_refused(server: Server) -> None:
    words = "No tool call found for function call output with call_id c9"
    with pytest.raises(RequestError, match=words):
        prompt_of(server, [message("user", "q"), output("c9", "x")])


@pytest.mark.parametrize(
    "item",
    [
        thought("R", encrypted_content="of another provider", summary=[]),
        thought(None, encrypted_content=sealed("R")),
        thought(None, summary=[{"type": "summary_text", "text": "R"}]),
    ],
    ids=["open", "sealed", "summary"],
)
def test_thoughts_come_back_in_any_form(server: Server, item: dict[str, Any]) -> None:
    given = [message("user", "q"), item, made("c1"), output("c1", "x")]
    assert "<think>\nR\n</think>\n\n<tool_call>" in prompt_of(server, given, tools=[TOOL]).text


def test_thoughts_of_others_are_dropped(server: Server) -> None:
    given = [
        message("user", "q"),
        thought(None, encrypted_content="gAAAAA=="),
        made("c1"),
        output("c1", ""),
    ]
    assert "<think>\n\n</think>\n\n<tool_call>" in prompt_of(server, given, tools=[TOOL]).text
    for broken in ("ninfer-thought-1.%%", "ninfer-thought-1./w==", None, 7):
        assert unsealed(broken) is None
    assert unsealed(sealed("é\ud800")) == "é\ud800"


def test_free_text_tools_and_namespaces_are_functions(server: Server) -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /x+/"}
    group = {"type": "namespace", "name": "ns", "tools": [TOOL]}
    tools = [{"type": "custom", "name": "patch", "format": grammar}, group]
    given = [
        message("user", "q"),
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "xx\n"},
        made("c2", namespace="ns"),
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
        output("c2", "ok"),
    ]
    text = prompt_of(server, given, tools=tools).text
    assert '"name": "patch", "description": "The input follows this grammar:\\nstart: /x+/"' in text
    assert "<function=patch>\n<parameter=input>\nxx\n\n</parameter>" in text
    assert '"name": "ns__f"' in text
    assert "<function=ns__f>" in text


def test_what_only_a_provider_can_run_is_left_out_with_a_notice(server: Server) -> None:
    """I2."""
    tools = [{"type": kind} for kind in ("web_search", "local_shell", "mcp", "tool_search")]
    given = [message("user", "q"), {"type": "web_search_call", "id": "ws", "status": "completed"}]
    assert prompt_of(server, given, tools=tools).text == prompt_of(server, "q").text
    page = server.service.metrics.page().decode()
    for name in ("tools of type web_search", "input of type web_search_call"):
        assert f'"{name}"' in page


def test_a_tool_is_shown_in_the_nested_form(server: Server) -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    tool = {
        "type": "function",
        "name": "f",
        "description": "<d>",
        "parameters": schema,
        "strict": True,
    }
    assert (
        '\n{"type": "function", "function": {"name": "f", "description": "<d>", "parameters": '
        '{"type": "object", "properties": {"b": {}, "a": {}}}}}\n'
        in prompt_of(server, "q", tools=[tool]).text
    )


def test_a_late_developer_message_stays_in_place(server: Server) -> None:
    """C2."""
    given = [
        message("user", "q"),
        message("assistant", "a"),
        message("user", "r"),
        message("developer", "new rules"),
    ]
    text = prompt_of(server, given).text
    assert text.startswith("<|im_start|>user\nq<|im_end|>")
    assert "<|im_start|>user\nr\n\nnew rules<|im_end|>" in text


def test_arguments_that_are_no_json_are_refused_by_place(server: Server) -> None:
    """C1."""
    with pytest.raises(RequestError, match=r"input\[1\].arguments"):
        prompt_of(server, [message("user", "q"), made("c1", arguments="{oops")], tools=[TOOL])
    text = prompt_of(server, [message("user", "q"), made("c1", arguments="")], tools=[TOOL]).text
    assert "<function=f>\n</function>" in text


def test_thinking_is_switched_in_every_way(server: Server) -> None:
    """B7."""
    for members in (
        {"reasoning": {"effort": "none", "summary": "auto"}},
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ):
        assert not prompt_of(server, "q", **members).starts_in_reasoning
    assert prompt_of(server, "q", reasoning={"effort": "high"}).starts_in_reasoning


def test_harmless_members_change_nothing(server: Server) -> None:
    """I1."""
    harmless = {
        "client_metadata": {"x": "y"},
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "reasoning": {"effort": None, "summary": "auto"},
        "service_tier": "auto",
        "store": False,
        "stream": True,
        "stream_options": {"include_obfuscation": False},
        "text": {"verbosity": "low"},
        "some_new_member": 1,
    }
    assert prompt_of(server, "q", **harmless).token_ids == prompt_of(server, "q").token_ids
