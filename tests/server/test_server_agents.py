"""Two-step tool tasks as Claude Code and Codex ask for them, in the shapes of their requests."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted_calls import answer, call
from serving import Server, serving

BETAS = (
    "claude-code-20250219,interleaved-thinking-2025-05-14,effort-2025-11-24,"
    "context-management-2025-06-27,mid-conversation-system-2026-04-07"
)
CACHED = {"cache_control": {"type": "ephemeral"}}
BASH_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "command": {"description": "The command", "type": "string"},
        "timeout": {"type": "number", "exclusiveMinimum": 0},
        "run_in_background": {"type": "boolean"},
    },
    "required": ["command"],
    "additionalProperties": False,
}
SPAWN_SCHEMA = {"type": "object", "properties": {"task": {"type": "string"}}}
TASK = "How many files are there?"
THOUGHT = "I count them with  ls."
STEPS = {
    "<tool_response>\n17": answer("There are 17 files.", thought="Now I know."),
    TASK: answer("I look.", call("Bash", command="ls | wc -l"), thought=THOUGHT),
}


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    engine = {"max_context": 8192, "reuse_decoded": True}
    with serving(micro_artifacts["dense"], engine=engine) as running:
        yield running


def claude_body(nonce: str, turns: list[Any]) -> dict[str, Any]:
    """A main request; the nonce is new each time."""
    billing = f"x-anthropic-billing-header: cc_version=2.1.197.a; cc_entrypoint=cli; cch={nonce};"
    tools = [
        {"name": name, "description": "d", "input_schema": BASH_SCHEMA} for name in ("Bash", "Read")
    ]
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {"type": "text", "text": billing},
            {"type": "text", "text": "You are an agent.", **CACHED},
            {"type": "text", "text": "Work in /project.", **CACHED},
        ],
        "tools": tools,
        "metadata": {"user_id": "u"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "messages": turns,
    }


def claude(server: Server, body: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Content blocks as the client puts them together, and the last message_delta."""
    with server.client() as asking:
        reply = asking._client.post(
            f"{server.url}/v1/messages?beta=true",
            json=body,
            headers={"anthropic-version": "2023-06-01", "anthropic-beta": BETAS},
        )
    assert reply.status_code == 200, reply.text
    events = [
        json.loads(line.removeprefix("data: "))
        for line in reply.text.split("\n")
        if line.startswith("data: ")
    ]
    blocks: list[Any] = []
    last: dict[str, Any] = {}
    for event in events:
        match event["type"]:
            case "content_block_start":
                blocks.append({**event["content_block"], "joined": ""})
            case "content_block_delta":
                delta = event["delta"]
                member = next(name for name in delta if name != "type")
                if member == "partial_json":
                    blocks[-1]["joined"] += delta[member]
                else:
                    blocks[-1][member] += delta[member]
            case "message_delta":
                last = event
    for block in blocks:
        joined = block.pop("joined")
        if block["type"] == "tool_use":
            block["input"] = json.loads(joined)
    return blocks, last


def test_claude_code_does_a_task_in_two_steps(server: Server) -> None:
    assert httpx.head(f"{server.url}/", timeout=60).status_code == 200
    server.scripts.texts = dict(STEPS)
    title = {
        "model": "claude-haiku-4-5",
        "max_tokens": 250,
        "stream": True,
        "tools": [],
        "system": [{"type": "text", "text": "Name the topic."}],
        "thinking": {"type": "disabled"},
        "messages": [{"role": "user", "content": "title please"}],
        "output_config": {
            "format": {
                "type": "json_schema",
                "schema": {
                    "type": "object",
                    "properties": {"title": {"type": "string", "maxLength": 8}},
                    "required": ["title"],
                    "additionalProperties": False,
                },
            }
        },
    }
    (named,), _ = claude(server, title)
    assert set(json.loads(named["text"])) == {"title"}
    turns: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": TASK, **CACHED}]},
        {"role": "system", "content": "Today is Monday."},
    ]
    blocks, last = claude(server, claude_body("aaaaa", turns))
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
    assert (blocks[0]["thinking"], blocks[2]["input"]) == (THOUGHT, {"command": "ls | wc -l"})
    assert last["delta"]["stop_reason"] == "tool_use"
    first = last["usage"]
    done = {"type": "tool_result", "tool_use_id": blocks[2]["id"], "content": "17", **CACHED}
    turns += [
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [{**done, "is_error": False}]},
    ]
    counted = server.post("/v1/messages/count_tokens", claude_body("ccccc", turns)).json()
    blocks, last = claude(server, claude_body("bbbbb", turns))
    assert blocks[-1]["text"] == "There are 17 files."
    assert last["delta"]["stop_reason"] == "end_turn"
    second = last["usage"]
    prompt = first["input_tokens"] + first["cache_read_input_tokens"]
    whole = second["input_tokens"] + second["cache_read_input_tokens"]
    assert counted["input_tokens"] == whole
    # What was written is read from the cache, not only what was asked.
    assert second["cache_read_input_tokens"] > prompt
    assert whole - prompt - first["output_tokens"] < 60


def codex_body(items: list[Any], **members: Any) -> dict[str, Any]:
    return {
        "model": "tiny",
        "instructions": "You are Codex.",
        "input": items,
        "tools": [
            {
                "type": "function",
                "name": "Bash",
                "description": "d",
                "strict": False,
                "parameters": BASH_SCHEMA,
            },
            {
                "type": "custom",
                "name": "apply_patch",
                "description": "Edits files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
            },
            {
                "type": "namespace",
                "name": "agents",
                "description": "d",
                "tools": [{"type": "function", "name": "spawn", "parameters": SPAWN_SCHEMA}],
            },
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "thread",
        "client_metadata": {"session_id": "s"},
        **members,
    }


def codex(server: Server, body: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The items that are done, which is all that this client acts on, and the response."""
    events = server.events("/v1/responses", body)
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert events[-1]["type"] == "response.completed"
    return done, events[-1]["response"]


def message(role: str, *texts: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content}


def returned(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item as this client sends it back: no open thought, no ids, no status."""
    kept = {name: value for name, value in item.items() if name not in ("id", "status")}
    if item["type"] == "reasoning":
        kept.pop("content")
    return kept


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "without thoughts"])
def test_codex_does_a_task_in_two_steps(server: Server, sealed: bool) -> None:
    """The thought is in the second prompt also when the client returns nothing of it."""
    server.scripts.texts = dict(STEPS)
    more = {} if sealed else {"include": []}
    items = [
        message("developer", "<permissions>"),
        message("developer", "<skills>"),
        message("user", "<environment_context>"),
        message("user", TASK),
    ]
    done, response = codex(server, codex_body(items, **more))
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert json.loads(done[2]["arguments"]) == {"command": "ls | wc -l"}
    assert isinstance(done[0]["encrypted_content"], str) == sealed
    first = response["usage"]
    output = {"type": "function_call_output", "call_id": done[2]["call_id"], "output": "17"}
    kept = [returned(item) for item in done]
    done, response = codex(server, codex_body([*items, *kept, output], **more))
    assert done[-1]["content"][0]["text"] == "There are 17 files."
    second = response["usage"]
    assert second["input_tokens_details"]["cached_tokens"] > first["input_tokens"]
    assert second["input_tokens"] - first["input_tokens"] - first["output_tokens"] < 60


def test_codex_patches_and_spawns(server: Server) -> None:
    patch = "*** Begin Patch\n*** Add File: a.txt\n+  hi \\n\n*** End Patch"
    server.scripts.texts = {
        "<tool_response>\nspawned": answer("Done."),
        "<tool_response>\npatched": answer("", call("agents__spawn", task="check")),
        "Add a file": answer("", call("apply_patch", input=patch)),
    }
    items = [message("user", "Add a file")]
    done, _ = codex(server, codex_body(items))
    (edit,) = done
    assert (edit["type"], edit["name"], edit["input"]) == ("custom_tool_call", "apply_patch", patch)
    told = {"type": "custom_tool_call_output", "call_id": edit["call_id"], "output": "patched"}
    items += [returned(edit), told]
    done, _ = codex(server, codex_body(items))
    (spawn,) = done
    assert (spawn["name"], spawn["namespace"]) == ("spawn", "agents")
    told = {"type": "function_call_output", "call_id": spawn["call_id"], "output": "spawned"}
    done, _ = codex(server, codex_body([*items, returned(spawn), told]))
    assert done[-1]["content"][0]["text"] == "Done."
