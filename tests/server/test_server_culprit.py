"""The member of a body that an error names: half a character is found wherever it stands."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from serving import Server

HALF = "\ud800"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}}
USER = [{"role": "user", "content": "q"}]
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
SHORT = {"messages": USER, "max_tokens": 2}
CHAT = "/v1/chat/completions"
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        CHAT,
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "q"}]},
                {
                    "role": "assistant",
                    "content": "a",
                    "reasoning_content": "r",
                    "tool_calls": [{"function": {"name": "f", "arguments": {"a": "b"}}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "t"},
            ],
            "tools": [{"type": "function", "function": FUNCTION}],
            "max_tokens": 2,
            "stop": ["z"],
        },
    ),
    "response_format": (
        CHAT,
        {**SHORT, "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
    ),
    "guided_json": (CHAT, {**SHORT, "guided_json": SCHEMA}),
    "guided_choice": (CHAT, {**SHORT, "guided_choice": ["a", "b"]}),
    "guided_regex": (CHAT, {**SHORT, "guided_regex": "a"}),
    "structured_outputs": (CHAT, {**SHORT, "structured_outputs": {"grammar": 'start: "a"'}}),
    "completions": ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2, "stop": "z"}),
    "responses": (
        "/v1/responses",
        {
            "instructions": "i",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "o"},
            ],
            "tools": [{"type": "function", **FUNCTION}],
            "max_output_tokens": 16,
        },
    ),
    "responses text": (
        "/v1/responses",
        {
            "input": "q",
            "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
            "max_output_tokens": 16,
        },
    ),
    "tokenize": ("/tokenize", {"prompt": "a"}),
}


def with_half(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any]]:
    """The value with half a character in place of each string of it, and in each inner name."""
    if isinstance(value, str):
        yield place(path), HALF
    if not isinstance(value, dict | list):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        for where, changed in with_half(item, (*path, key)):
            outer = copy.copy(value)
            outer[key] = changed
            yield where, outer
        if path and isinstance(key, str):
            renamed = {name: part for name, part in value.items() if name != key}
            yield place(path), {**renamed, key + HALF: item}


def place(path: tuple[Any, ...]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


@pytest.mark.parametrize("name", BODIES)
def test_half_a_character_is_named_by_its_place(server: Server, name: str) -> None:
    path, body = BODIES[name]
    assert server.post(path, body).status_code == 200
    refused = 0
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for where, changed in with_half(body):
            # The client's own JSON would not take it.
            reply = client.post(path, content=json.dumps(changed))
            if reply.status_code == 200:
                continue
            refused += 1
            error = reply.json()["error"]
            assert reply.status_code == 400, (where, reply.text)
            # Checks of types name the member that they miss, which lies below.
            param, root = error["param"], where.partition("[")[0].partition(".")[0]
            exact = param == where if "surrogate" in error["message"] else param.startswith(root)
            assert exact, (where, error)
    assert refused


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": "a " * 2000}, "prompt"),
        ("/v1/responses", {"input": "a " * 2000}, "input"),
        (CHAT, {"messages": [{"role": "user", "content": "a " * 2000}]}, "messages"),
        ("/detokenize", {"tokens": [2**30]}, "tokens"),
        ("/v1/completions", {"prompt": [2**30]}, "prompt"),
    ],
)
def test_the_prompt_has_the_name_that_its_protocol_gives_it(
    server: Server, path: str, body: dict[str, Any], param: str
) -> None:
    reply = server.post(path, body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param, reply.text
