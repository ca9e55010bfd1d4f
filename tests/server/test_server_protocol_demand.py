"""Reports of lost calls, thoughts and texts, tried over Messages and Responses by their ids.

The texts are what a model wrote; each must give the same in both protocols, streamed and not.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted_calls import answer, call
from serving import END, Server, cancelled, send, serving, text_of, until

PROPERTIES: dict[str, Any] = {
    "path": {"type": "string"},
    "all": {"type": "boolean"},
    "n": {"type": "integer"},
    "maybe": {"type": ["boolean", "null"]},
    "any": {"anyOf": [{"type": "object"}, {"type": "null"}]},
    "ref": {"$ref": "#/$defs/r"},
}
SCHEMA = {
    "type": "object",
    "properties": PROPERTIES,
    "$defs": {"r": {"type": "object", "properties": {"k": {"type": "integer"}}}},
}
HEAD = "<tool_call>\n<function=f>\n"
TAIL = "</function>\n</tool_call>"
PAGE = f"# Calls\n\n{call('f', path='a', n='3')}\n\nEnds at `</parameter>`.\n"


@dataclass(frozen=True)
class Found:
    """What a client has at the end."""

    thought: str
    text: str
    calls: list[Any]


def case(name: str, text: str, thought: str, said: str, *calls: Any) -> Any:
    return pytest.param(text, Found(thought, said, list(calls)), id=name)


CASES = [
    case(
        "a1", answer("", call("f", all="True", path="True")), "", "", {"all": True, "path": "True"}
    ),
    case("a2 open", answer("", f"{HEAD}</function>"), "", "", {}),
    case("a2 early", f"R {call('f', n='1')}{END}", "R", "", {"n": 1}),
    case("a4", answer("", call("f", path=PAGE)), "", "", {"path": PAGE}),
    case(
        "a7",
        answer("", call("f", path="cd a && cat <f &amp; x")),
        "",
        "",
        {"path": "cd a && cat <f &amp; x"},
    ),
    case(
        "a8",
        answer("", f"{HEAD}<parameter=path>\nP\n<parameter=n>\n3\n</parameter>{TAIL}"),
        "",
        "",
        {"path": "P", "n": 3},
    ),
    case("a10", f"I must {call('f', path='p')}{END}", "I must", "", {"path": "p"}),
    case("a11", answer("Use the <tool_call> tag to call."), "", "Use the <tool_call> tag to call."),
    case(
        "a20",
        answer(
            "",
            f"{HEAD}<parameter=n>\n1\n</parameter>\n</parameter>\n"
            f"<parameter=path>\nb\n</parameter>\n{TAIL}",
        ),
        "",
        "",
        {"n": 1, "path": "b"},
    ),
    case(
        "a22",
        answer("", call("f", maybe="false", any='{"a": 1}', ref='{"k": 2}')),
        "",
        "",
        {"maybe": False, "any": {"a": 1}, "ref": {"k": 2}},
    ),
    case("a22 null", answer("", call("f", maybe="null")), "", "", {"maybe": None}),
    case("a23", answer("", call("f", n="2026-01-15")), "", "", {"n": "2026-01-15"}),
    case("b2", answer("</think> is a tag", thought="no tag"), "no tag", "</think> is a tag"),
    case("c5", answer("", call("f", n="1"), thought="then"), "then", "", {"n": 1}),
    case("g2", answer("日本 🙂 é", thought="思"), "思", "日本 🙂 é"),
]


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    options: dict[str, Any] = {"engine": {"max_context": 4096}, "keep_alive_ms": 50}
    with serving(micro_artifacts["dense"], **options) as running:
        yield running


def messages_body(word: str) -> dict[str, Any]:
    tools = [{"name": "f", "description": "d", "input_schema": SCHEMA}]
    return {"max_tokens": 500, "messages": text_of(word), "tools": tools}


def responses_body(word: str) -> dict[str, Any]:
    tools = [{"type": "function", "name": "f", "parameters": SCHEMA}]
    return {"max_output_tokens": 500, "input": word, "tools": tools}


def by_messages(server: Server, word: str, *, stream: bool) -> Found:
    if not stream:
        reply = server.post("/v1/messages", messages_body(word))
        content = reply.json()["content"]
        return Found(
            "".join(b["thinking"] for b in content if b["type"] == "thinking"),
            "".join(b["text"] for b in content if b["type"] == "text"),
            [b["input"] for b in content if b["type"] == "tool_use"],
        )
    thought, text, calls = "", "", []
    for event in server.events("/v1/messages", messages_body(word)):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            calls.append("")
        delta = event.get("delta", {})
        thought += delta.get("thinking", "")
        text += delta.get("text", "")
        if "partial_json" in delta:
            calls[-1] += delta["partial_json"]
    return Found(thought, text, [json.loads(made) for made in calls])


def by_responses(server: Server, word: str, *, stream: bool) -> Found:
    if stream:
        events = server.events("/v1/responses", responses_body(word))
        output = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    else:
        output = server.post("/v1/responses", responses_body(word)).json()["output"]
    texts = {"reasoning": "", "message": ""}
    for item in output:
        if item["type"] in texts:
            texts[item["type"]] += item["content"][0]["text"]
    calls = [json.loads(i["arguments"]) for i in output if i["type"] == "function_call"]
    return Found(texts["reasoning"], texts["message"], calls)


def in_all_ways(server: Server, word: str) -> list[Found]:
    """By both protocols, whole and streamed, at the same time."""
    ways = [(ask, stream) for ask in (by_messages, by_responses) for stream in (False, True)]
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda way: way[0](server, word, stream=way[1]), ways))


@pytest.mark.parametrize(("written", "expected"), CASES)
def test_what_a_model_wrote_reaches_the_client(
    server: Server, written: str, expected: Found
) -> None:
    server.scripts.texts = {"quest": written}
    assert in_all_ways(server, "quest") == [expected] * 4


def test_a13_arguments_come_while_they_are_written(server: Server) -> None:
    server.scripts.texts = {"quest": answer("", call("f", path="a line of it\n" * 20))}
    events = server.events("/v1/messages", messages_body("quest"))
    assert sum("partial_json" in event.get("delta", {}) for event in events) > 20
    events = server.events("/v1/responses", responses_body("quest"))
    kinds = [event["type"] for event in events]
    assert kinds.count("response.function_call_arguments.delta") > 20


def test_a26_a_call_of_an_undeclared_tool_comes_promptly(server: Server) -> None:
    """It is passed on, for the client to answer, or it is text; never an error."""
    server.scripts.texts = {"quest": answer("", call("task", path="p"))}
    found = in_all_ways(server, "quest")
    assert found == found[:1] * 4
    assert found[0].calls == [{"path": "p"}] or "task" in found[0].text


def test_signs_of_life(server: Server) -> None:
    """Each protocol has its own, while the model takes its time."""
    server.scripts.texts = {"slowly": answer("ok")}
    server.scripts.pace["slowly"] = 0.2
    body = {**messages_body("slowly"), "stream": True}
    assert "event: ping\ndata: {" in server.post("/v1/messages", body).text
    body = {**responses_body("slowly"), "stream": True}
    assert "\n: keep-alive\n\n" in server.post("/v1/responses", body).text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_j5_a_client_that_leaves_is_no_error(server: Server, path: str, stream: bool) -> None:
    """J1, J2: its place is free at once, and nothing of it is stored."""
    server.scripts.texts = {"endless": answer("word " * 300)}
    server.scripts.pace["endless"] = 0.02
    make = messages_body if path == "/v1/messages" else responses_body
    stored = len(server.service.responses)
    body = {**make("endless"), "stream": stream}
    before = cancelled(server)
    with send(server, body, path) as connection:
        if stream:
            assert connection.recv(1000)
        until(lambda: server.engine.snapshot().load.running == 1)
    server.settled()
    until(lambda: cancelled(server) == before + 1)
    assert len(server.service.responses) == stored
    page = server.service.metrics.page().decode()
    assert 'outcome="error"' not in page


def test_i8_an_engine_that_ends_is_an_error_in_the_stream(
    micro_artifacts: dict[str, Path],
) -> None:
    """Never the normal end of half an answer."""
    for path, make, ending in (
        ("/v1/messages", messages_body, "error"),
        ("/v1/responses", responses_body, "response.failed"),
    ):
        with serving(micro_artifacts["dense"]) as ended:
            ended.scripts.texts = {"endless": f"word {'x ' * 300}"}
            ended.scripts.pace["endless"] = 0.02
            body = {**make("endless"), "stream": True, "tools": []}
            with (
                httpx.Client(timeout=60) as client,
                client.stream("POST", f"{ended.url}{path}", json=body) as reply,
            ):
                lines = reply.iter_lines()
                next(line for line in lines if "delta" in line)
                ended.loop.call_soon_threadsafe(
                    lambda: ended.loop.create_task(ended.service.drain(0))
                )
                types = [json.loads(li[6:])["type"] for li in lines if li.startswith("data: ")]
        assert types[-1] == ending
