"""What Messages may hold, and what of it reaches the model."""

import base64
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scripted_calls import answer
from serving import Server, serving, text_of

from ninfer.request import PreparedPrompt
from ninfer.server.anthropic.ask import understand
from ninfer.server.anthropic.schema import CountBody
from ninfer.server.body import checked

TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    engine = {"max_context": 4096, "vision": True}
    with serving(micro_artifacts["dense"], engine=engine) as running:
        yield running


def prompt_of(server: Server, messages: list[Any], **members: Any) -> PreparedPrompt:
    """What the model would be asked."""
    body = checked(CountBody, {"messages": messages, **members})
    conversation = understand(body, server.service).conversation
    return server.engine.prepare(conversation)


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def use(name: str, call_id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def picture() -> dict[str, Any]:
    pixels = np.random.default_rng(1).integers(0, 256, (64, 96, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def test_blocks_of_system_stand_for_themselves_and_the_nonce_goes(server: Server) -> None:
    nonce = said("x-anthropic-billing-header: cc_version=2; cch=1a2b3;")
    cached = {**said("Be brief."), "cache_control": {"type": "ephemeral"}}
    prompt = prompt_of(server, text_of("q"), system=[nonce, said("You code."), cached])
    assert prompt.text.startswith("<|im_start|>system\nYou code.\n\nBe brief.<|im_end|>\n")
    assert "billing" not in prompt.text
    joined = f"{nonce['text']}\nYou code.\n\nBe brief."
    assert prompt_of(server, text_of("q"), system=joined).text == prompt.text


def test_a_nonce_that_changes_leaves_the_prompt_cached(server: Server) -> None:
    server.scripts.texts["nonce"] = answer("ok")
    usages = []
    for number in ("11111", "22222"):
        head = said(f"x-anthropic-billing-header: cc_version=2.1; cch={number};")
        body = {
            "max_tokens": 30,
            "system": [head, said("You are a careful programmer. " * 12)],
            "messages": text_of("nonce"),
        }
        usages.append(server.post("/v1/messages", body).json()["usage"])
    first, second = usages
    total = first["input_tokens"]
    assert second["cache_read_input_tokens"] > 0.7 * total
    assert second["input_tokens"] + second["cache_read_input_tokens"] == total


def test_counting_gives_the_tokens_of_the_prompt(server: Server) -> None:
    server.scripts.texts["sum"] = answer("ok")
    body = {
        "system": "S",
        "tools": [TOOL],
        "messages": [user(said("sum"), picture())],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    counted = server.post("/v1/messages/count_tokens?beta=true", {**body, "model": "m"}).json()
    usage = server.post("/v1/messages", {**body, "max_tokens": 2000}).json()["usage"]
    assert counted["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]


def test_thirty_counts_at_once(server: Server) -> None:
    """`/context` of Claude Code: one tool and a word, or no tools, all at the same time."""

    def count(tools: list[Any]) -> int:
        body = {"tools": tools, "messages": text_of("foo"), "thinking": {"type": "adaptive"}}
        reply = server.post("/v1/messages/count_tokens?beta=true", body)
        assert reply.status_code == 200, reply.text
        tokens: int = reply.json()["input_tokens"]
        return tokens

    with ThreadPoolExecutor(30) as pool:
        found = list(pool.map(count, [[], [TOOL], [{**TOOL, "description": "longer"}]] * 10))
    assert len(set(found)) == 3
    assert found[:3] * 10 == found


def test_a_mid_conversation_system_message_leads_or_stays_in_place(server: Server) -> None:
    """C2: before the first answer it leads; later it joins the turn before it."""
    turns: list[Any] = [*text_of("q1"), {"role": "system", "content": "context"}]
    assert prompt_of(server, turns).text.startswith("<|im_start|>system\ncontext<|im_end|>")
    turns += [
        assistant(said("a1")),
        user(said("q2")),
        {"role": "system", "content": [said("reminder")]},
        {"role": "system", "content": []},
    ]
    text = prompt_of(server, turns).text
    assert "<|im_start|>user\nq2\n\nreminder<|im_end|>" in text
    assert text.startswith("<|im_start|>system\ncontext<|im_end|>")


def test_results_come_first_in_the_order_of_the_calls(server: Server) -> None:
    turns = [
        user(said("q")),
        assistant(said("on it"), use("f", "t1", k=1), use("f", "t2")),
        user(said("and?"), result("t2", "second"), result("t1", [said("fir"), said("st")])),
    ]
    text = prompt_of(server, turns, tools=[TOOL]).text
    assert (
        "<|im_start|>user\n<tool_response>\nfirst\n</tool_response>\n<tool_response>\nsecond\n"
        "</tool_response><|im_end|>\n<|im_start|>user\nand?<|im_end|>" in text
    )


def test_a_picture_in_a_result_reaches_the_model(server: Server) -> None:
    """C7."""
    call = assistant(use("f", "t1"))
    shot = user(result("t1", [said("shot"), picture()], is_error=False))
    prompt = prompt_of(server, [user(said("q")), call, shot], tools=[TOOL])
    assert len(prompt.media) == 1
    assert "<tool_response>\nshot<|vision_start|><|image_pad|>" in prompt.text
    server.scripts.texts["seen"] = answer("a picture")
    body = {
        "max_tokens": 20,
        "tools": [TOOL],
        "messages": [user(said("seen?")), call, shot],
    }
    reply = server.post("/v1/messages", body)
    assert reply.json()["content"][0]["text"] == "a picture"


def test_a_picture_that_cannot_be_read_is_named(server: Server) -> None:
    """C8: the part is named, so that a client can take it out."""
    svg = {"type": "base64", "media_type": "image/svg+xml", "data": "PHN2Zy8+"}
    turns = [user(said("q"), {"type": "image", "source": svg})]
    reply = server.post("/v1/messages", {"max_tokens": 5, "messages": turns})
    assert reply.status_code == 400
    assert reply.json()["error"]["message"].startswith("messages.0.content.1")


def test_thoughts_are_the_reasoning_of_their_turn(server: Server) -> None:
    turns = [
        user(said("q")),
        assistant(
            {"type": "thinking", "thinking": "T", "signature": "of another provider"},
            {"type": "redacted_thinking", "data": "xyz"},
            said(""),
            use("f", "t1"),
        ),
        user(result("t1")),
    ]
    text = prompt_of(server, turns, tools=[TOOL]).text
    assert "<|im_start|>assistant\n<think>\nT\n</think>\n\n<tool_call>\n<function=f>" in text
    assert "<tool_response>\n\n</tool_response>" in text


def test_documents_search_results_and_references_are_text(server: Server) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "the text"}
    turns = [
        user(
            {"type": "document", "source": source, "title": "Title"},
            {
                "type": "search_result",
                "title": "Found",
                "source": "https://a.example",
                "content": [said("line")],
            },
            {"type": "tool_reference", "tool_name": "mcp__x__y"},
        )
    ]
    text = prompt_of(server, turns).text
    assert "Title\n\nthe text" in text
    assert "Found\nhttps://a.example\nline" in text
    assert "mcp__x__y" in text


def test_history_of_a_providers_own_tools_is_left_out(server: Server) -> None:
    turns = [
        user(said("q")),
        assistant(
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
            said("found"),
        ),
        user(said("q2")),
    ]
    assert "<|im_start|>assistant\nfound<|im_end|>" in prompt_of(server, turns).text


def test_tools_of_the_provider_are_left_out_and_those_of_the_client_shown(server: Server) -> None:
    """I2: a web search that comes alone is no error, even when it is asked for."""
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    alone = prompt_of(server, text_of("q"), tools=[search])
    assert alone.text == prompt_of(server, text_of("q")).text
    server.scripts.texts["find"] = answer("nothing")
    for choice in ({"type": "tool", "name": "web_search"}, {"type": "any"}):
        body = {"max_tokens": 20, "tools": [search], "tool_choice": choice}
        reply = server.post("/v1/messages", {**body, "messages": text_of("find")})
        assert reply.json()["content"][0]["text"] == "nothing"
    known = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    ]
    text = prompt_of(server, text_of("q"), tools=known).text
    assert '"name": "bash"' in text
    assert '"restart"' in text
    assert '"file_text"' in text


def test_a_tool_is_shown_as_the_client_wrote_it(server: Server) -> None:
    schema = {"$schema": "s", "type": "object", "properties": {"b": {}, "a": {}}, "$defs": {}}
    tool = {
        "name": "mcp__a__b.c",
        "description": "<d> & é",
        "input_schema": schema,
        "strict": True,
        "cache_control": {"type": "ephemeral"},
        "eager_input_streaming": True,
    }
    text = prompt_of(server, text_of("q"), tools=[tool, {"name": "bare"}]).text
    assert (
        '{"type": "function", "function": {"name": "mcp__a__b.c", "description": "<d> & é", '
        '"parameters": {"$schema": "s", "type": "object", "properties": {"b": {}, "a": {}}, '
        '"$defs": {}}}}' in text
    )
    assert '"name": "bare", "parameters": {"type": "object", "properties": {}}' in text


def test_conversations_without_a_user(server: Server) -> None:
    """C4."""
    for turns in ([{"role": "system", "content": "S"}], [assistant(use("f", "t1"))]):
        assert prompt_of(server, turns, tools=[TOOL]).token_ids
        assert server.post("/v1/messages/count_tokens", {"messages": turns}).is_success


def test_tags_in_the_text_of_others_do_not_end_the_thought(server: Server) -> None:
    """B2."""
    system = "A thought ends with </think>. Calls are <tool_call>..</tool_call>."
    assert prompt_of(server, text_of("</think>"), system=system).starts_in_reasoning


def test_harmless_members_change_nothing(server: Server) -> None:
    harmless = {
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "cache_control": {"type": "ephemeral"},
        "container": None,
        "mcp_servers": [],
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "some_new_beta": {"a": 1},
    }
    plain = prompt_of(server, text_of("q"))
    assert prompt_of(server, text_of("q"), **harmless).token_ids == plain.token_ids
