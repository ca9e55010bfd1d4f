"""Chat Completions with the real client: text, reasoning, tools, forms, logprobs, usage."""

import json
from typing import Any

import openai
import pytest
from serving import END, Server, text_of

OFF = {"enable_thinking": False}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "order",
        "parameters": {
            "type": "object",
            "properties": {
                "dish": {"type": "string", "maxLength": 6},
                "count": {"type": "integer", "minimum": 0, "maximum": 99},
            },
            "required": ["dish", "count"],
            "additionalProperties": False,
        },
    },
}
CALL = (
    "<tool_call>\n<function=order>\n<parameter=dish>\n{dish}\n</parameter>\n"
    "<parameter=count>\n{count}\n</parameter>\n</function>\n</tool_call>"
)


def ask(server: Server, word: str, *, stream: bool, **options: Any) -> dict[str, Any]:
    """The first choice of an answer, streamed or not, in one form; the real client reads both."""
    with server.client() as client:
        if not stream:
            reply = client.chat.completions.create(
                model="tiny", messages=text_of(word), **options
            ).model_dump()
            choice = reply["choices"][0]
            message = choice["message"]
            return {
                "content": message["content"] or "",
                "reasoning": message.get("reasoning_content") or "",
                "calls": [
                    (call["id"], call["function"]["name"], call["function"]["arguments"])
                    for call in message.get("tool_calls") or []
                ],
                "finish": choice["finish_reason"],
                "usage": reply["usage"],
                "logprobs": (choice["logprobs"] or {}).get("content"),
            }
        return joined(
            client.chat.completions.create(
                model="tiny",
                messages=text_of(word),
                stream=True,
                stream_options={"include_usage": True},
                **options,
            )
        )


def joined(chunks: Any) -> dict[str, Any]:
    """What the chunks of one choice come to."""
    found: dict[str, Any] = {
        "content": "",
        "reasoning": "",
        "calls": {},
        "finish": None,
        "usage": None,
        "logprobs": None,
    }
    for chunk in chunks:
        chunk = chunk.model_dump()
        if not chunk["choices"]:
            found["usage"] = chunk["usage"]
            continue
        (choice,) = chunk["choices"]
        assert found["finish"] is None, "nothing follows the finish of a choice"
        delta = choice["delta"]
        found["content"] += delta.get("content") or ""
        found["reasoning"] += delta.get("reasoning_content") or ""
        assert delta.get("reasoning") == delta.get("reasoning_content")
        for call in delta.get("tool_calls") or []:
            entry = found["calls"].setdefault(call["index"], ["", "", ""])
            entry[0] += call["id"] or ""
            entry[1] += call["function"]["name"] or ""
            entry[2] += call["function"]["arguments"] or ""
        if choice["logprobs"]:
            found["logprobs"] = (found["logprobs"] or []) + choice["logprobs"]["content"]
        found["finish"] = choice["finish_reason"]
    found["calls"] = [tuple(entry) for _, entry in sorted(found["calls"].items())]
    return found


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both
def test_text_reasoning_and_usage(server: Server, stream: bool) -> None:
    server.scripts.texts["soup"] = f"first I think\n</think>\n\nthen – I say 🙂{END}"
    found = ask(server, "soup", stream=stream)
    assert found["reasoning"] == "first I think"
    assert found["content"] == "then – I say 🙂"
    assert found["finish"] == "stop"
    usage = found["usage"]
    assert usage["completion_tokens"] > usage["completion_tokens_details"]["reasoning_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@both
def test_thinking_is_switched_off_in_every_way(server: Server, stream: bool) -> None:
    """B7: each of these works; the answer then begins at once."""
    server.scripts.texts["plain"] = f"an answer{END}"
    for options in (
        {"extra_body": {"enable_thinking": False}},
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        {"extra_body": {"thinking": {"type": "disabled"}}},
        {"extra_body": {"reasoning": {"enabled": False}}},
        {"reasoning_effort": "none"},
    ):
        found = ask(server, "plain", stream=stream, **options)
        assert (found["reasoning"], found["content"]) == ("", "an answer"), options


@both
@pytest.mark.parametrize(
    "wish",
    [
        {"include_reasoning": False},
        {"separate_reasoning": False},
        {"stream_reasoning": False},
        {"reasoning": {"exclude": True}},
    ],
    ids=str,
)
def test_a_thought_is_left_out_on_wish(server: Server, stream: bool, wish: dict[str, Any]) -> None:
    server.scripts.texts["quiet"] = f"first I think\n</think>\n\nthen I say{END}"
    found = ask(server, "quiet", stream=stream, extra_body=wish)
    assert (found["reasoning"], found["content"]) == ("", "then I say")
    assert found["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


@both
def test_b1_a_limit_inside_thinking_leaves_no_content(server: Server, stream: bool) -> None:
    found = ask(server, "hm", stream=stream, max_tokens=6)
    assert found["finish"] == "length" and found["content"] == ""
    assert found["usage"]["completion_tokens"] == 6
    assert found["usage"]["completion_tokens_details"]["reasoning_tokens"] == 6


@both
def test_calls_between_texts(server: Server, stream: bool) -> None:
    calls = CALL.format(dish="a</b>\n  c", count=3) + "\n" + CALL.format(dish="tea", count=1)
    server.scripts.texts["two calls"] = f"Sure.\n\n{calls}{END}"
    found = ask(server, "two calls", stream=stream, tools=[TOOL], extra_body=OFF)
    assert found["content"] == "Sure."
    assert found["finish"] == "tool_calls"
    assert [(name, json.loads(text)) for _, name, text in found["calls"]] == [
        ("order", {"dish": "a</b>\n  c", "count": 3}),
        ("order", {"dish": "tea", "count": 1}),
    ]
    ids = [call_id for call_id, _, _ in found["calls"]]
    assert len(set(ids)) == 2 and all(call_id.startswith("call_") for call_id in ids)


@both
def test_a_call_that_the_limit_cuts_is_not_offered_whole(server: Server, stream: bool) -> None:
    server.scripts.texts["cut call"] = CALL.format(dish="tea", count=1) + CALL
    tokens = len(server.engine.text.encode(CALL.format(dish="tea", count=1))) + 12
    found = ask(server, "cut call", stream=stream, tools=[TOOL], extra_body=OFF, max_tokens=tokens)
    assert found["finish"] == "length"
    assert json.loads(found["calls"][0][2]) == {"dish": "tea", "count": 1}
    if not stream:
        assert len(found["calls"]) == 1


@both
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "order"}}], ids=str
)
def test_a28_a_forced_call_comes_from_noise(server: Server, stream: bool, choice: Any) -> None:
    """A28: the constraint makes the call, whatever the model would have written."""
    other = {"type": "function", "function": {"name": "other", "parameters": {}}}
    found = ask(
        server,
        "noise",
        stream=stream,
        tools=[{**TOOL, "function": {**TOOL["function"], "strict": True}}, other],
        tool_choice=choice,
        max_tokens=600,
        seed=5,
        temperature=1.0,
        extra_body=OFF,
    )
    assert found["calls"], found
    if isinstance(choice, dict):
        (call,) = found["calls"]
        assert call[1] == "order"
        assert isinstance(json.loads(call[2])["count"], int)


def test_no_call_may_be_made(server: Server) -> None:
    found = ask(
        server,
        "never calls",
        stream=False,
        tools=[TOOL],
        tool_choice="none",
        max_tokens=60,
        extra_body=OFF,
    )
    assert found["calls"] == [] and "<tool_call>" not in found["content"]


@both
def test_json_of_a_schema_from_noise(server: Server, stream: bool) -> None:
    """H1: the form is enforced."""
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "maximum": 9}},
        "required": ["ok", "n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    found = ask(server, "form", stream=stream, response_format=form, max_tokens=200, extra_body=OFF)
    value = json.loads(found["content"])
    assert isinstance(value["ok"], bool) and value["n"] <= 9


@pytest.mark.parametrize(
    ("extra", "allowed"),
    [
        ({"guided_choice": ["red", "green"]}, ("red", "green")),
        ({"structured_outputs": {"choice": ["red", "green"]}}, ("red", "green")),
        ({"guided_regex": "[ab]{3}c"}, None),
        ({"guided_grammar": 'start: "yes" | "no"'}, ("yes", "no")),
        ({"guided_json": {"enum": [17]}}, ("17",)),
    ],
    ids=str,
)
def test_guided_answers(server: Server, extra: dict[str, Any], allowed: Any) -> None:
    found = ask(server, "guided", stream=False, max_tokens=50, extra_body={**OFF, **extra})
    assert found["finish"] == "stop"
    text = found["content"]
    assert text in allowed if allowed else (len(text) == 4 and set(text[:3]) <= {"a", "b"})


@both
def test_log_probabilities_go_with_every_token(server: Server, stream: bool) -> None:
    server.scripts.texts["likely"] = f"häppy 🙂{END}"
    found = ask(server, "likely", stream=stream, logprobs=True, top_logprobs=3, extra_body=OFF)
    entries = found["logprobs"]
    assert len(entries) == found["usage"]["completion_tokens"]
    raw = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert raw.decode() == f"häppy 🙂{END}"
    for entry in entries:
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(values) == 3 and values == sorted(values, reverse=True)
        assert entry["logprob"] <= 0


@both
def test_stop_strings_in_content_only(server: Server, stream: bool) -> None:
    server.scripts.texts["halt"] = f"a STOP here\n</think>\n\nbefore STOP after{END}"
    found = ask(server, "halt", stream=stream, stop=["STOP"])
    assert found["reasoning"] == "a STOP here"
    assert found["content"] == "before "
    assert found["finish"] == "stop"
    shown = ask(
        server,
        "halt",
        stream=stream,
        stop="STOP",
        extra_body={"include_stop_str_in_output": True},
    )
    assert shown["content"] == "before STOP"


def test_several_answers_and_their_seeds(server: Server) -> None:
    extra = {**OFF, "ignore_eos": True}
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 1.0, "extra_body": extra}
    with server.client() as client:
        reply = client.chat.completions.create(
            model="tiny", messages=text_of("many"), n=3, seed=-7, **options
        )
        texts = [choice.message.content for choice in reply.choices]
        assert [choice.index for choice in reply.choices] == [0, 1, 2]
        assert len(set(texts)) > 1
        assert reply.usage is not None and reply.usage.completion_tokens == 36
        alone = client.chat.completions.create(
            model="tiny", messages=text_of("many"), seed=-6, **options
        )
        assert alone.choices[0].message.content == texts[1]
        streamed = ["", "", ""]
        ended = []
        for chunk in client.chat.completions.create(
            model="tiny", messages=text_of("many"), n=3, seed=-7, stream=True, **options
        ):
            (choice,) = chunk.choices
            streamed[choice.index] += choice.delta.content or ""
            ended += [choice.index] if choice.finish_reason else []
        assert streamed == texts and sorted(ended) == [0, 1, 2]


def test_a_bias_and_penalties_reach_the_draw(server: Server) -> None:
    token = server.engine.text.encode("x")[0]
    found = ask(
        server, "biased", stream=False, logit_bias={str(token): 100}, max_tokens=5, extra_body=OFF
    )
    assert found["content"] == "xxxxx"
    found = ask(
        server,
        "biased",
        stream=False,
        logit_bias={str(token): 30},
        presence_penalty=2,
        frequency_penalty=2,
        temperature=0.5,
        max_tokens=40,
        extra_body={**OFF, "repetition_penalty": 5.0},
    )
    assert found["content"] != "x" * 40


def test_a_repeated_prompt_is_reported_as_cached(server: Server) -> None:
    words = "the same long beginning " * 20
    first = ask(server, words, stream=False, max_tokens=2, temperature=0, extra_body=OFF)
    again = ask(server, words, stream=False, max_tokens=2, temperature=0, extra_body=OFF)
    cached = [f["usage"]["prompt_tokens_details"]["cached_tokens"] for f in (first, again)]
    assert cached[0] == 0 and cached[1] > 0
    fresh = ask(
        server,
        words,
        stream=False,
        max_tokens=2,
        temperature=0,
        extra_body={**OFF, "cache_prompt": False},
    )
    assert fresh["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert fresh["content"] == again["content"]
    for _ in range(2):
        salted = ask(
            server,
            words,
            stream=False,
            max_tokens=2,
            temperature=0,
            extra_body={"cache_salt": "mine"},
        )
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_runs_of_a_fixed_length(server: Server) -> None:
    server.scripts.texts["short"] = f"no{END}"
    extra = {**OFF, "ignore_eos": True}
    found = ask(server, "short", stream=False, max_tokens=20, extra_body=extra)
    assert found["usage"]["completion_tokens"] == 20 and found["finish"] == "length"
    end = server.engine.text.encode(END)[0]
    least = ask(
        server,
        "eager",
        stream=False,
        max_tokens=30,
        logit_bias={str(end): 100},
        extra_body={**OFF, "min_tokens": 9},
    )
    assert least["usage"]["completion_tokens"] == 10 and least["finish"] == "stop"


def test_a_tool_loop_with_array_content(server: Server) -> None:
    """Qwen Code sends tool results as arrays of parts, and arguments as text."""
    server.scripts.texts["loop"] = f"done{END}"
    call = {"id": "call_1", "type": "function", "function": {"name": "order", "arguments": ""}}
    messages: list[Any] = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "loop"}]},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "ok"}]},
    ]
    with server.client() as client:
        reply = client.chat.completions.create(
            model="tiny", messages=messages, tools=[TOOL], extra_body=OFF
        )
    assert reply.choices[0].message.content == "done"


def test_the_helper_of_the_client_parses_a_stream(server: Server) -> None:
    server.scripts.texts["helper"] = CALL.format(dish="tea", count=2) + END
    with (
        server.client() as client,
        client.chat.completions.stream(
            model="tiny", messages=text_of("helper"), tools=[TOOL], extra_body=OFF
        ) as stream,
    ):
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    assert json.loads(message.tool_calls[0].function.arguments) == {"dish": "tea", "count": 2}


def test_chunks_of_a_stream_follow_the_rules(server: Server) -> None:
    server.scripts.texts["rules"] = f"one\u2028two\x85three{END}"
    body = {"messages": text_of("rules"), **OFF}
    *chunks, done = server.events("/v1/chat/completions", body)
    assert done == "[DONE]"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == "one\u2028two\x85three"
    body["stream_options"] = {"continuous_usage_stats": True, "include_usage": True}
    *chunks, last, done = server.events("/chat/completions", body)
    assert last["choices"] == [] and last["usage"]["completion_tokens"] > 0
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == last["usage"]["completion_tokens"]


def test_token_ids_are_given_when_asked_for(server: Server) -> None:
    server.scripts.texts["ids"] = f"some words{END}"
    body = {"messages": text_of("ids"), "return_token_ids": True, **OFF}
    reply = server.post("/v1/chat/completions", body).json()
    assert reply["choices"][0]["token_ids"] == server.engine.text.encode(f"some words{END}")
    assert len(reply["prompt_token_ids"]) == reply["usage"]["prompt_tokens"]
    *chunks, _ = server.events("/v1/chat/completions", body)
    assert chunks[0]["prompt_token_ids"] == reply["prompt_token_ids"]
    ids = [token for c in chunks for token in c["choices"][0].get("token_ids") or ()]
    assert ids == reply["choices"][0]["token_ids"]


def test_an_error_has_the_words_that_the_client_reads(server: Server) -> None:
    with server.client() as client:
        with pytest.raises(openai.NotFoundError) as found:
            client.chat.completions.create(model="gpt-9", messages=text_of("hi"))
        assert found.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError, match="maximum context length is 1024") as long:
            client.chat.completions.create(model="tiny", messages=text_of("word " * 2000))
        assert long.value.code == "context_length_exceeded"
