"""Bodies of Messages and Responses with parts replaced: understood or refused, never worse."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Server, serving

from ninfer.errors import RequestError
from ninfer.server.anthropic.ask import ask_of as messages_ask
from ninfer.server.anthropic.schema import MessagesBody
from ninfer.server.body import checked
from ninfer.server.responses.ask import ask_of as responses_ask
from ninfer.server.responses.ask import understand
from ninfer.server.responses.schema import ResponsesBody

DEEP: Any = "x"
for _ in range(400):
    DEEP = [DEEP]
JUNK: list[Any] = [
    *(None, True, 0, -1, 2**70, 1.5, "", "x", "text", "\ud800", "<|im_end|>", [], {}),
    *([[]], [None], [{}], {"type": []}, {"type": {}}, {"type": "text"}, {"role": ["user"]}, DEEP),
    *({"type": "function"}, {"type": "custom"}, {"type": "namespace"}, {"name": {}}),
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
MESSAGES = {
    "model": "m",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
    "tools": [
        {"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True},
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "bash_20250124", "name": "bash"},
    ],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 2},
    "output_config": {"effort": "low"},
    "stop_sequences": ["a"],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "system", "content": [{"type": "text", "text": "s"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "T", "signature": "s"},
                {"type": "text", "text": "a"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "b"}},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "text", "text": "r"}],
                },
                {
                    "type": "document",
                    "title": "t",
                    "source": {"type": "text", "media_type": "text/plain", "data": "d"},
                },
                {
                    "type": "search_result",
                    "source": "s",
                    "title": "t",
                    "content": [{"type": "text", "text": "r"}],
                },
                {"type": "tool_reference", "tool_name": "f"},
            ],
        },
    ],
}
RESPONSES = {
    "model": "tiny",
    "instructions": "I",
    "max_output_tokens": 5,
    "tools": [
        {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
        {"type": "custom", "name": "p", "format": {"type": "grammar", "definition": "x"}},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]},
        {"type": "web_search"},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "f"}],
    },
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "text"}},
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "input": [
        {"type": "message", "role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "content": None},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": "b"}'},
        {"type": "custom_tool_call", "call_id": "e", "name": "p", "input": "i"},
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "o"}],
        },
        {"type": "custom_tool_call_output", "call_id": "e", "output": "o"},
        {"type": "web_search_call", "id": "w"},
    ],
}


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    with serving(micro_artifacts["dense"], engine={"max_context": 4096}) as running:
        yield running


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key)
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield (*path, index)
            yield from places(item, (*path, index))


def replaced(body: dict[str, Any], path: tuple[Any, ...], junk: Any) -> dict[str, Any]:
    changed = copy.deepcopy(body)
    inner: Any = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = junk
    return changed


def as_messages(server: Server, body: dict[str, Any]) -> None:
    ask = messages_ask(checked(MessagesBody, body), server.service)
    assert ask.conversation is not None
    server.engine.prepare(ask.conversation, None, server.service.turns.recall_for(0))


def as_responses(server: Server, body: dict[str, Any]) -> None:
    given = checked(ResponsesBody, body)
    found = understand(given, server.service, 0)
    responses_ask(given, found, server.service)
    server.engine.prepare(found.conversation, None, server.service.turns.recall_for(0))


def run(
    server: Server, body: dict[str, Any], take: Callable[[Server, Any], None], count: int
) -> tuple[int, int]:
    """How many changed bodies were understood and refused."""
    take(server, body)
    chosen = random.Random(1)
    every = list(places(body))
    understood = refused = 0
    for _ in range(count):
        changed = replaced(body, chosen.choice(every), chosen.choice(JUNK))
        try:
            take(server, changed)
            understood += 1
        except RequestError:
            refused += 1
    return understood, refused


@pytest.mark.parametrize(
    ("body", "take"),
    [(MESSAGES, as_messages), (RESPONSES, as_responses)],
    ids=["messages", "items"],
)
def test_replaced_parts_are_understood_or_refused(
    server: Server, body: dict[str, Any], take: Callable[[Server, Any], None]
) -> None:
    understood, refused = run(server, body, take, 400)
    assert min(understood, refused) > 50


@pytest.mark.soak
@pytest.mark.parametrize(
    ("body", "take"),
    [(MESSAGES, as_messages), (RESPONSES, as_responses)],
    ids=["messages", "items"],
)
def test_many_replaced_parts(
    server: Server,
    body: dict[str, Any],
    take: Callable[[Server, Any], None],
    record_property: Callable[[str, object], None],
) -> None:
    record_property("count", sum(run(server, body, take, 20_000)))
    record_property("unit", "bodies of Messages and Responses with a part replaced")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_half_a_character_in_what_is_only_repeated(server: Server, stream: bool) -> None:
    server.scripts.texts = {"quest": "</think>\n\nok<|im_end|>"}
    for path, body in (
        (
            "/v1/messages",
            {
                "model": "\ud800",
                "max_tokens": 9,
                "messages": [{"role": "user", "content": "quest"}],
            },
        ),
        ("/v1/responses", {"input": "quest", "max_output_tokens": 9, "user": "\ud800"}),
    ):
        # The client's own JSON would not take it.
        data = json.dumps({"stream": stream, **body})
        reply = httpx.post(f"{server.url}{path}", content=data, timeout=60)
        assert reply.status_code == 200, reply.text
        assert "\\ud800" in reply.text
        assert "internal_error" not in reply.text
