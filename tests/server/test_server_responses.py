"""OpenAI Responses with the real client: streamed and not, every kind of item and ending."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from scripted_calls import answer, call
from serving import END, Server, serving

TOOL: dict[str, Any] = {
    "type": "function",
    "name": "order",
    "description": "Order a dish.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {
            "dish": {"type": "string", "maxLength": 6},
            "count": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["dish", "count"],
        "additionalProperties": False,
    },
}
LOOSE = {**TOOL, "strict": False}
PATCH = {"type": "custom", "name": "patch", "description": "Change files."}
OFF = {"effort": "none"}


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    with serving(micro_artifacts["dense"], engine={"max_context": 4096}) as running:
        yield running


def ask(server: Server, given: Any, *, stream: bool, **options: Any) -> Response:
    """The response that the real client makes of an answer, streamed or not."""
    fields: dict[str, Any] = {
        "model": "tiny",
        "max_output_tokens": 200,
        "input": given,
        **options,
    }
    with server.client() as asking:
        if not stream:
            return asking.responses.create(**fields)
        with asking.responses.stream(**fields) as events:
            for event in events:
                if event.type in ("response.completed", "response.incomplete"):
                    return event.response
    raise AssertionError("the stream did not end")


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both
def test_thought_text_and_usage(server: Server, stream: bool) -> None:
    server.scripts.texts["soup"] = answer("then – I say 🙂", thought="first I muse")
    found = ask(server, "soup", stream=stream)
    thought, message = found.output
    assert [part.text for part in thought.content] == ["first I muse"]
    assert (thought.summary, thought.encrypted_content) == ([], None)
    assert found.output_text == "then – I say 🙂"
    assert (message.role, message.status, found.status) == ("assistant", "completed", "completed")
    assert [item.id.split("_")[0] for item in (found, thought, message)] == ["resp", "rs", "msg"]
    usage = found.usage
    assert usage.output_tokens > usage.output_tokens_details.reasoning_tokens > 0
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


def test_the_response_has_every_member(server: Server) -> None:
    server.scripts.texts["soup"] = answer("hi")
    body = {
        "input": "soup",
        "max_output_tokens": 50,
        "temperature": 0.5,
        "metadata": {"a": "b"},
        "tools": [TOOL],
        "prompt_cache_key": "k",
        "truncation": "auto",
    }
    found = server.post("/v1/responses", body).json()
    required = (
        "id object created_at completed_at status incomplete_details model previous_response_id "
        "instructions output error tools tool_choice truncation parallel_tool_calls text top_p "
        "presence_penalty frequency_penalty top_logprobs temperature reasoning usage "
        "max_output_tokens max_tool_calls store background service_tier metadata "
        "safety_identifier prompt_cache_key"
    )
    assert set(required.split()) <= set(found)
    assert (found["temperature"], found["metadata"]) == (0.5, {"a": "b"})
    assert (found["tools"], found["model"]) == ([TOOL], "tiny")
    assert (found["truncation"], found["prompt_cache_key"]) == ("auto", "k")


def test_events_come_in_the_order_of_the_protocol(server: Server) -> None:
    """I4: each item is opened, grown and closed; numbers without gaps, indices that stay."""
    server.scripts.texts["feast"] = answer(
        "Now.",
        call("order", dish="tea", count="2"),
        call("patch", input='a "b"\n\\c 🙂'),
        thought="R",
    )
    body = {"max_output_tokens": 300, "input": "feast", "tools": [LOOSE, PATCH]}
    events = server.events("/v1/responses", body)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"].removeprefix("response.") for event in events]
    joined = [kind for k, kind in enumerate(kinds) if kind[-6:] != ".delta" or kinds[k - 1] != kind]
    part = ["content_part.done", "output_item.done"]
    assert joined == [
        "created",
        "in_progress",
        *("output_item.added", "content_part.added", "reasoning_text.delta"),
        *("reasoning_text.done", *part),
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", *part),
        *("output_item.added", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "custom_tool_call_input.delta"),
        *("custom_tool_call_input.done", "output_item.done"),
        "completed",
    ]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in done] == [0, 1, 2, 3]
    assert events[-1]["response"]["output"] == [event["item"] for event in done]
    for index, event in enumerate(done):
        item, ended = event["item"], [e for e in events if e.get("output_index") == index]
        pieces = "".join(e["delta"] for e in ended if "delta" in e)
        content = item.get("content") or [{}]
        shown = item.get("arguments") or item.get("input") or content[0].get("text")
        assert pieces == shown
        assert {e["item_id"] for e in ended if "item_id" in e} == {item["id"]}
        assert {e.get("content_index", 0) for e in ended} == {0}
    assert json.loads(done[2]["item"]["arguments"]) == {"dish": "tea", "count": 2}
    assert done[3]["item"]["input"] == 'a "b"\n\\c 🙂'
    assert done[3]["item"]["type"] == "custom_tool_call"


@both
def test_calls_in_parallel(server: Server, stream: bool) -> None:
    made = [call("order", dish="<ü&>", count="3"), call("order", dish="42", count="1")]
    server.scripts.texts["double"] = answer("", *made)
    found = ask(server, "double", stream=stream, tools=[LOOSE])
    assert [(c.type, c.name, json.loads(c.arguments)) for c in found.output] == [
        ("function_call", "order", {"dish": "<ü&>", "count": 3}),
        ("function_call", "order", {"dish": "42", "count": 1}),
    ]
    assert len({c.call_id for c in found.output}) == 2


@both
def test_a_tool_of_a_namespace_keeps_its_name(server: Server, stream: bool) -> None:
    inner = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}
    group = {"type": "namespace", "name": "agents", "description": "d", "tools": [inner]}
    server.scripts.texts["helper"] = answer("", call("agents__spawn", task="x"))
    (made,) = ask(server, "helper", stream=stream, tools=[group]).output
    assert (made.name, made.namespace) == ("spawn", "agents")
    choice = {"type": "function", "name": "spawn"}
    forced = server.post(
        "/v1/responses",
        {
            "input": "eat",
            "tools": [group],
            "tool_choice": choice,
            "max_output_tokens": 60,
            "reasoning": OFF,
        },
    ).json()
    assert forced["output"][0]["name"] == "spawn"


@both
@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "order"},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "order"}, {"type": "web_search"}],
        },
    ],
    ids=["required", "named", "allowed"],
)
def test_forced_calls(server: Server, stream: bool, choice: Any) -> None:
    """A28."""
    tools = [TOOL, PATCH] if choice != "required" else [TOOL]
    found = ask(
        server,
        "eat",
        stream=stream,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=False,
        reasoning=OFF,
    )
    (made,) = found.output
    assert (made.type, made.name) == ("function_call", "order")
    assert set(json.loads(made.arguments)) == {"dish", "count"}


@both
def test_a_limit_makes_it_incomplete(server: Server, stream: bool) -> None:
    """B1, A2: a thought that is cut is no answer, and half a call is none."""
    server.scripts.texts["brood"] = "a long thought " * 20
    found = ask(server, "brood", stream=stream, max_output_tokens=16)
    (thought,) = found.output
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (thought.type, thought.status) == ("reasoning", "incomplete")
    server.scripts.texts["halved"] = answer("", call("order", dish="long " * 50, count="1"))
    found = ask(server, "halved", stream=stream, max_output_tokens=60, tools=[LOOSE])
    assert (found.status, found.output) == ("incomplete", [])


def test_a_call_that_was_cut_off_is_never_done(server: Server) -> None:
    """Codex runs whatever stands in output_item.done."""
    server.scripts.texts["halved"] = answer("", call("order", dish="long " * 50, count="1"))
    body = {"max_output_tokens": 60, "input": "halved", "tools": [LOOSE]}
    kinds = [event["type"] for event in server.events("/v1/responses", body)]
    assert "response.output_item.added" in kinds
    assert "response.output_item.done" not in kinds
    assert kinds[-1] == "response.incomplete"


@both
def test_the_form_of_an_answer(server: Server, stream: bool) -> None:
    """H1."""
    schema = {
        "type": "object",
        "properties": {"title": {"type": "string", "maxLength": 8}},
        "required": ["title"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "title", "schema": schema, "strict": True}
    found = ask(server, "name", stream=stream, text={"format": form}, reasoning=OFF)
    assert set(json.loads(found.output_text)) == {"title"}
    assert found.text.format.type == "json_schema"


@both
def test_logprobs_of_the_text(server: Server, stream: bool) -> None:
    """F4: one entry for each token of the text, whose bytes are the text."""
    server.scripts.texts["odds"] = f"even 🙂{END}"
    found = ask(
        server,
        "odds",
        stream=stream,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        reasoning=OFF,
    )
    (part,) = found.output[0].content
    said = b"".join(bytes(entry.bytes) for entry in part.logprobs)
    assert said.decode() == part.text == "even 🙂"
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)


@both
def test_an_empty_answer_has_no_items(server: Server, stream: bool) -> None:
    server.scripts.texts["nothing"] = END
    found = ask(server, "nothing", stream=stream, reasoning=OFF)
    assert (found.output, found.status) == ([], "completed")


def test_too_long_a_prompt(server: Server) -> None:
    """I10: an agent is told in the stream, by the word that it knows; others by the status."""
    reply = server.post("/v1/responses", {"input": "long " * 3000})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    created, failed = server.events("/v1/responses", {"input": "long " * 3000})[::2]
    assert (created["type"], failed["type"]) == ("response.created", "response.failed")
    error = failed["response"]["error"]
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length is 4096 tokens" in error["message"]
    server.settled()


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": 7}, "input"),
        ({"input": []}, "input"),
        ({"input": [7]}, "input[0]"),
        ({"input": [{}]}, "input[0].type"),
        ({"input": [{"type": "song"}]}, "input[0].type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "content[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "content[0].file_id",
        ),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input[0].type"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "background": True}, "background"),
        ({"input": "x", "conversation": "c"}, "conversation"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
        ({"input": "x", "truncation": "middle"}, "truncation"),
        ({"input": "x", "n": 2}, "n"),
        ({"input": "x", "metadata": {"a": 1}}, "metadata"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": "x", "tools": [{"type": "song", "name": "s"}]}, "tools[0].type"),
        ({"input": "x", "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"input": "x", "tool_choice": "required"}, "tool_choice"),
        ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format"),
        ({"input": "x", "previous_response_id": "resp_none"}, "previous_response_id"),
        ({"input": "x", "reasoning": {"effort": "much"}}, "reasoning_effort"),
    ],
)
@both
def test_what_is_wrong_is_named_before_any_event(
    server: Server, stream: bool, body: dict[str, Any], named: str
) -> None:
    reply = server.post("/v1/responses", {"stream": stream, **body})
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert named in (error["param"] or error["message"])


def test_an_unknown_model_and_a_reference_to_nothing(server: Server) -> None:
    with server.client() as asking:
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            asking.responses.create(model="gpt-x", input="x")
        with pytest.raises(openai.NotFoundError, match="msg_none"):
            asking.responses.create(
                model="tiny", input=[{"type": "item_reference", "id": "msg_none"}]
            )
