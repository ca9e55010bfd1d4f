"""Anthropic Messages with the real client: streamed and not, every kind of block and ending."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from scripted_calls import answer, call
from serving import END, Server, serving, text_of

TOOL: dict[str, Any] = {
    "name": "order",
    "description": "Order a dish.",
    "input_schema": {
        "type": "object",
        "properties": {
            "dish": {"type": "string", "maxLength": 6},
            "count": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["dish", "count"],
        "additionalProperties": False,
    },
}
OFF = {"type": "disabled"}


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    with serving(micro_artifacts["dense"], engine={"max_context": 4096}) as running:
        yield running


def client(server: Server) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120)


def ask(server: Server, word: str, *, stream: bool, **options: Any) -> anthropic.types.Message:
    """The message that the real client makes of an answer, streamed or not."""
    fields: dict[str, Any] = {
        "model": "claude-of-any-kind",
        "max_tokens": 200,
        "messages": text_of(word),
        **options,
    }
    with client(server) as asking:
        if not stream:
            return asking.messages.create(**fields)
        with asking.messages.stream(**fields) as events:
            return events.get_final_message()


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both
def test_thought_text_and_usage(server: Server, stream: bool) -> None:
    server.scripts.texts["soup"] = answer("then – I say 🙂", thought="first I think")
    found = ask(server, "soup", stream=stream)
    thought, text = found.content
    assert (thought.type, thought.thinking) == ("thinking", "first I think")
    assert thought.signature
    assert (text.type, text.text) == ("text", "then – I say 🙂")
    assert (found.stop_reason, found.stop_sequence) == ("end_turn", None)
    assert found.id.startswith("msg_")
    assert found.model == "claude-of-any-kind"
    usage = found.usage
    assert usage.output_tokens > usage.output_tokens_details.thinking_tokens > 0
    assert usage.input_tokens > 0
    assert usage.cache_creation_input_tokens == 0


@both
def test_the_whole_prompt_is_input_and_cache_together(server: Server, stream: bool) -> None:
    server.scripts.texts["pasta"] = answer("ok")
    long = f"{stream} pasta " + "and more of it " * 20
    first = ask(server, long, stream=stream, thinking=OFF).usage
    again = ask(server, long, stream=stream, thinking=OFF).usage
    assert first.cache_read_input_tokens == 0
    assert again.cache_read_input_tokens > 0
    assert again.input_tokens + again.cache_read_input_tokens == first.input_tokens


@both
def test_calls_in_parallel(server: Server, stream: bool) -> None:
    server.scripts.texts["double"] = answer(
        "I order.", call("order", dish="<ü&>", count="3"), call("order", dish="42", count="1")
    )
    found = ask(server, "double", stream=stream, tools=[TOOL])
    text, *calls = found.content
    assert text.text == "I order."
    assert [(c.type, c.name, c.input) for c in calls] == [
        ("tool_use", "order", {"dish": "<ü&>", "count": 3}),
        ("tool_use", "order", {"dish": "42", "count": 1}),
    ]
    assert len({c.id for c in calls}) == 2
    assert all(c.id.startswith("toolu_") for c in calls)
    assert found.stop_reason == "tool_use"


@both
def test_a_call_without_arguments_has_an_empty_object(server: Server, stream: bool) -> None:
    server.scripts.texts["bare"] = answer("", call("look"))
    tools = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]
    (found,) = ask(server, "bare", stream=stream, tools=tools).content
    assert (found.name, found.input) == ("look", {})


def test_events_come_in_the_order_of_the_protocol(server: Server) -> None:
    """I5: each block is opened, grown by its own kind of delta, and closed; indices from 0."""
    server.scripts.texts["order"] = answer(
        "Now.",
        call("order", dish="tea", count="2"),
        call("order", dish="a", count="1"),
        thought="R",
    )
    body = {"max_tokens": 300, "messages": text_of("order"), "tools": [TOOL]}
    events = server.events("/v1/messages", body)
    assert [e["type"] for e in events[:1]] == ["message_start"]
    assert [e["type"] for e in events[-2:]] == ["message_delta", "message_stop"]
    start = events[0]["message"]
    assert start["content"] == []
    assert start["usage"]["input_tokens"] + start["usage"]["cache_read_input_tokens"] > 100
    deltas = {
        "thinking": ["thinking_delta", "signature_delta"],
        "text": ["text_delta"],
        "tool_use": ["input_json_delta"],
    }
    index, kind, pieces = -1, "", []
    for event in events[1:-2]:
        match event["type"]:
            case "content_block_start":
                assert not kind
                index += 1
                kind = event["content_block"]["type"]
                pieces = []
            case "content_block_delta":
                assert event["delta"]["type"] in deltas[kind]
                pieces.append(event["delta"])
            case "content_block_stop":
                if kind == "thinking":
                    assert [p["type"] for p in pieces[-1:]] == ["signature_delta"]
                if kind == "tool_use":
                    assert pieces[0]["partial_json"] == ""
                    assert json.loads("".join(p["partial_json"] for p in pieces))
                kind = ""
        if event["type"] != "content_block_start":
            assert event["index"] == index
    assert index == 3
    last = events[-2]
    assert last["delta"]["stop_reason"] == "tool_use"
    prompt = start["usage"]["input_tokens"]
    assert (last["usage"]["input_tokens"], last["usage"]["output_tokens"] > 10) == (prompt, True)


def test_the_event_line_has_the_type_of_the_data(server: Server) -> None:
    server.scripts.texts["soup"] = answer("hi")
    body = {"max_tokens": 50, "messages": text_of("soup"), "stream": True}
    reply = server.post("/v1/messages?beta=true", body)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["request-id"] == reply.headers["x-request-id"]
    for block in reply.text.strip().split("\n\n"):
        name, data = block.split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"


@both
def test_stop_sequences_are_named_and_cut_out(server: Server, stream: bool) -> None:
    server.scripts.texts["count"] = f"one two STOP three{END}"
    found = ask(server, "count", stream=stream, thinking=OFF, stop_sequences=["zzz", " STOP"])
    assert [block.text for block in found.content] == ["one two"]
    assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", " STOP")


@both
def test_a_limit_in_a_thought_leaves_a_thought(server: Server, stream: bool) -> None:
    """B1: what was thought is never the answer."""
    server.scripts.texts["brood"] = "a long thought " * 20
    found = ask(server, "brood", stream=stream, max_tokens=16)
    assert [block.type for block in found.content] == ["thinking"]
    assert found.stop_reason == "max_tokens"


def test_a_call_cut_off_by_a_limit_is_not_offered(server: Server) -> None:
    """A2: whole messages leave it out; a stream shows a client that its JSON is not whole."""
    server.scripts.texts["halved"] = answer("", call("order", dish="a long dish " * 30, count="1"))
    options: dict[str, Any] = {"max_tokens": 60, "tools": [TOOL]}
    found = ask(server, "halved", stream=False, **options)
    assert [block.type for block in found.content] == ["text"]
    assert found.stop_reason == "max_tokens"
    events = server.events("/v1/messages", {"messages": text_of("halved"), **options})
    pieces = [e["delta"]["partial_json"] for e in events if e.get("delta", {}).get("partial_json")]
    with pytest.raises(json.JSONDecodeError):
        json.loads("".join(pieces))
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"


@both
def test_an_empty_answer_is_an_empty_text(server: Server, stream: bool) -> None:
    server.scripts.texts["nothing"] = END
    found = ask(server, "nothing", stream=stream, thinking=OFF)
    assert [(b.type, b.text) for b in found.content] == [("text", "")]
    assert found.stop_reason == "end_turn"


@both
def test_no_tokens_only_fill_the_cache(server: Server, stream: bool) -> None:
    long = str(stream) + " warm" * 80
    found = ask(server, long, stream=stream, max_tokens=0)
    assert (found.content, found.stop_reason) == ([], "max_tokens")
    assert found.usage.output_tokens == 0
    server.scripts.texts["warm"] = answer("ok")
    assert ask(server, long, stream=stream).usage.cache_read_input_tokens > 0


@both
@pytest.mark.parametrize(
    "choice",
    [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "order"}],
    ids=["any", "named"],
)
def test_forced_calls(server: Server, stream: bool, choice: dict[str, Any]) -> None:
    """A28: a call comes whatever the model would have written, and fits its schema."""
    tools = [{**TOOL, "strict": True}]
    found = ask(server, "eat", stream=stream, thinking=OFF, tools=tools, tool_choice=choice)
    calls = [block for block in found.content if block.type == "tool_use"]
    assert calls
    assert found.stop_reason == "tool_use"
    for made in calls:
        assert set(made.input) == {"dish", "count"}
        assert len(made.input["dish"]) <= 6


@both
def test_no_calls_and_single_calls(server: Server, stream: bool) -> None:
    server.scripts.texts["pair"] = answer("", *2 * [call("order", dish="tea", count="2")])
    none = ask(server, "pair", stream=stream, tools=[TOOL], tool_choice={"type": "none"})
    assert "tool_use" not in {block.type for block in none.content}
    choice = {"type": "any", "disable_parallel_tool_use": True}
    one = ask(server, "eat", stream=stream, thinking=OFF, tools=[TOOL], tool_choice=choice)
    assert [block.type for block in one.content] == ["tool_use"]


@both
def test_thinking_is_switched_limited_and_hidden(server: Server, stream: bool) -> None:
    """B7 for this protocol."""
    server.scripts.texts["plain"] = f"an answer{END}"
    for options in ({"thinking": OFF}, {"output_config": {"effort": "none"}}):
        (text,) = ask(server, "plain", stream=stream, **options).content
        assert text.text == "an answer"
    server.scripts.texts["ponder"] = answer("said", thought="hmm")
    adaptive = {"type": "adaptive"}
    config = {"effort": "high"}
    found = ask(server, "ponder", stream=stream, thinking=adaptive, output_config=config)
    assert [block.type for block in found.content] == ["thinking", "text"]
    hidden = ask(server, "ponder", stream=stream, thinking={**adaptive, "display": "omitted"})
    assert (hidden.content[0].thinking, hidden.content[1].text) == ("", "said")
    assert hidden.content[0].signature == found.content[0].signature


@both
def test_a_budget_closes_the_thought(server: Server, stream: bool) -> None:
    budget = {"type": "enabled", "budget_tokens": 9}
    found = ask(server, "free", stream=stream, max_tokens=40, thinking=budget)
    details = found.usage.output_tokens_details
    assert 0 < details.thinking_tokens <= 9 + 12
    # More than the answer may have is no reason to refuse it.
    budget["budget_tokens"] = 4096
    found = ask(server, "free", stream=stream, max_tokens=40, thinking=budget)
    assert found.usage.output_tokens <= 40


@both
@pytest.mark.parametrize("member", ["output_config", "output_format"])
def test_the_form_of_an_answer(server: Server, stream: bool, member: str) -> None:
    """H1, H2: enforced, with the thought left free; a title request of Claude Code has tools []."""
    schema = {
        "type": "object",
        "properties": {"title": {"type": "string", "maxLength": 8}},
        "required": ["title"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "schema": schema}
    body = {"output_config": {"format": form}} if member == "output_config" else {member: form}
    found = ask(
        server, "name", stream=stream, tools=[], extra_body=body, thinking=OFF, max_tokens=250
    )
    (text,) = found.content
    assert set(json.loads(text.text)) == {"title"}


@both
def test_an_answer_that_the_client_has_begun(server: Server, stream: bool) -> None:
    """It goes on behind the very text, white space included, and without a thought."""
    server.scripts.texts["colour"] = f" blue.{END}"
    turns = [*text_of("colour?"), {"role": "assistant", "content": "It is  "}]
    found = ask(server, "", stream=stream, messages=turns)
    assert [block.text for block in found.content] == [" blue."]
    with pytest.raises(anthropic.BadRequestError, match="assistant message"):
        thinking = {"type": "enabled", "budget_tokens": 1024}
        ask(server, "", stream=stream, messages=turns, thinking=thinking, max_tokens=2000)


def test_the_begun_answer_is_in_the_prompt_as_it_stands(server: Server) -> None:
    from_one = server.post(
        "/v1/messages/count_tokens",
        {"messages": [*text_of("q"), {"role": "assistant", "content": "a  \n"}]},
    ).json()["input_tokens"]
    without = server.post(
        "/v1/messages/count_tokens", {"messages": text_of("q"), "thinking": OFF}
    ).json()["input_tokens"]
    assert from_one == without + len(server.service.text.encode("a  \n"))


def test_errors_have_the_shape_of_the_protocol(server: Server) -> None:
    with client(server) as asking:
        with pytest.raises(anthropic.BadRequestError) as caught:
            asking.messages.create(model="x", max_tokens=5, messages=text_of("long " * 3000))
        body = caught.value.body
        assert isinstance(body, dict)
        assert body["type"] == "error"
        assert body["error"]["type"] == "invalid_request_error"
        # I10: clients read both numbers.
        words = body["error"]["message"].split()
        assert words[:4] == ["prompt", "is", "too", "long:"]
        assert int(words[4]) > int(words[7]) == 4096
        assert body["request_id"] == caught.value.response.headers["request-id"]
    assert server.post("/v1/messages/nothing", {}).json()["error"]["type"] == "not_found_error"


def test_counting_is_never_too_long(server: Server) -> None:
    reply = server.post("/v1/messages/count_tokens", {"messages": text_of("long " * 3000)})
    assert reply.json()["input_tokens"] > 4096


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [123]}, "messages.0"),
        ({"messages": [{}]}, "messages.0.role"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages.0.content.0.type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "audio"}]}]},
            "messages.0.content.0.type",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "content.0.text"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "document",
                                "source": {
                                    "type": "base64",
                                    "media_type": "application/pdf",
                                    "data": "",
                                },
                            }
                        ],
                    }
                ]
            },
            "application/pdf",
        ),
        ({"messages": text_of("x"), "max_tokens": None}, "max_tokens"),
        ({"messages": text_of("x"), "max_tokens": -1}, "max_tokens"),
        ({"messages": text_of("x"), "max_tokens": 1.5}, "max_tokens"),
        ({"messages": text_of("x"), "temperature": 3}, "temperature"),
        ({"messages": text_of("x"), "stop_sequences": [""]}, "stop_sequences"),
        ({"messages": text_of("x"), "mcp_servers": [{"name": "a"}]}, "mcp_servers"),
        ({"messages": text_of("x"), "container": "c1"}, "container"),
        ({"messages": text_of("x"), "thinking": {"type": "maybe"}}, "thinking.type"),
        ({"messages": text_of("x"), "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"messages": text_of("x"), "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"messages": text_of("x"), "tools": [{"input_schema": {}}]}, "tools.0.name"),
        ({"messages": text_of("x"), "tools": [TOOL, TOOL]}, "tools[1]"),
    ],
)
@both
def test_what_is_wrong_is_named_before_any_event(
    server: Server, stream: bool, body: dict[str, Any], named: str
) -> None:
    reply = server.post("/v1/messages", {"max_tokens": 5, "stream": stream, **body})
    assert reply.status_code == 400, reply.text
    assert reply.json()["type"] == "error"
    assert named in reply.json()["error"]["message"]


def test_a_full_queue_is_529(micro_artifacts: dict[str, Path]) -> None:
    engine = {"max_concurrency": 1, "max_pending_requests": 1}
    with serving(micro_artifacts["dense"], engine=engine) as small:
        small.service._taken = small.service.places
        reply = small.post("/v1/messages", {"max_tokens": 5, "messages": text_of("x")})
        small.service._taken = 0
        assert reply.status_code == 529
        assert reply.json()["error"]["type"] == "overloaded_error"
        assert reply.headers["retry-after"]


def test_keys_of_both_kinds(micro_artifacts: dict[str, Path]) -> None:
    body = {"messages": text_of("x")}
    with serving(micro_artifacts["dense"], api_key=("secret",)) as closed:
        reply = closed.post("/v1/messages/count_tokens", body)
        assert (reply.status_code, reply.json()["error"]["type"]) == (401, "authentication_error")
        for headers in ({"x-api-key": "secret"}, {"authorization": "bearer secret"}):
            assert closed.post("/v1/messages/count_tokens", body, headers=headers).is_success
