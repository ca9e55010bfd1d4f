"""continue_final_message and add_generation_prompt: the end of the prompt, and what follows it."""

from typing import Any

import pytest
from serving import END, Server

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "q"}
HEAD = "<|im_start|>user\nq<|im_end|>\n"
TURN = "<|im_start|>assistant\n"


def answer(content: Any, reasoning: str | None = None, **members: Any) -> dict[str, Any]:
    thought = {} if reasoning is None else {"reasoning_content": reasoning}
    return {"role": "assistant", "content": content, **thought, **members}


def prompt(server: Server, messages: list[Any], **members: Any) -> str:
    reply = server.post("/tokenize", {"messages": messages, **members})
    assert reply.status_code == 200, reply.text
    return str(server.post("/detokenize", {"tokens": reply.json()["tokens"]}).json()["prompt"])


@pytest.mark.parametrize(
    ("last", "members", "end"),
    [
        (answer("Half "), {}, TURN + "<think>\n\n</think>\n\nHalf "),
        (answer("Half", " R\n"), {}, TURN + "<think>\nR\n</think>\n\nHalf"),
        (answer(None, "So I "), {}, TURN + "<think>\nSo I "),
        (answer([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), {}, "\n\nab"),
        (
            answer("Half"),
            {"chat_template_kwargs": {"enable_thinking": False}},
            TURN + "<think>\n\n</think>\n\nHalf",
        ),
        (answer("<|im_end|>"), {}, "</think>\n\n<|im_end|>"),
    ],
)
def test_the_last_message_stays_open(
    server: Server, last: dict[str, Any], members: dict[str, Any], end: str
) -> None:
    for add in ({}, {"add_generation_prompt": False}):
        shown = prompt(server, [USER, last], continue_final_message=True, **add, **members)
        assert shown.startswith(HEAD + TURN) and shown.endswith(end), shown


def test_a_client_cannot_end_the_turn_that_it_begins(server: Server) -> None:
    body = {"messages": [USER, answer("<|im_end|>")], "continue_final_message": True}
    tokens = server.post("/tokenize", body).json()["tokens"]
    stop = server.engine.text.added_id(END)
    assert tokens.count(stop) == 1


def test_a_prompt_may_end_with_the_last_message(server: Server) -> None:
    shown = prompt(server, [USER, answer("a")], add_generation_prompt=False)
    assert shown == HEAD + TURN + "<think>\n\n</think>\n\na<|im_end|>\n"
    assert prompt(server, [USER, answer("a")]) == shown + TURN + "<think>\n"
    assert prompt(server, [USER, answer("a")], add_generation_prompt=True) == shown + TURN + (
        "<think>\n"
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("last", "written", "reasoning", "content"),
    [
        (answer("quest The answer is"), " 42." + END, None, " 42."),
        (answer("quest is", "R"), " 42." + END, None, " 42."),
        (answer(None, "quest I"), " know\n</think>\n\nYes" + END, " know", "Yes"),
    ],
)
def test_what_is_written_is_all_that_is_answered(
    server: Server, stream: bool, last: Any, written: str, reasoning: str | None, content: str
) -> None:
    server.scripts.texts = {"quest": written}
    body = {
        "messages": [USER, last],
        "continue_final_message": True,
        "add_generation_prompt": False,
        "max_tokens": 60,
    }
    if not stream:
        reply = server.post(CHAT, body)
        assert reply.status_code == 200, reply.text
        message = reply.json()["choices"][0]["message"]
        assert message["content"] == content
        assert message.get("reasoning_content") == reasoning
        return
    deltas = [
        event["choices"][0]["delta"] for event in server.events(CHAT, body) if event != "[DONE]"
    ]
    assert "".join(delta.get("content") or "" for delta in deltas) == content
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == (reasoning or "")


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
REFUSED: dict[str, tuple[list[Any], dict[str, Any], str, str]] = {
    "both": ([USER, answer("a")], {"add_generation_prompt": True}, "both true", "continue"),
    "a question": ([USER], {}, "has the role user", "continue"),
    "a result": (
        [
            USER,
            answer("", tool_calls=[CALL]),
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ],
        {},
        "has the role tool",
        "continue",
    ),
    "calls": ([USER, answer("a", tool_calls=[CALL])], {}, "has more than text", "continue"),
    "nothing": ([USER, answer("")], {}, "is empty", "continue"),
    "a thought that is off": (
        [USER, answer("a", "R")],
        {"chat_template_kwargs": {"enable_thinking": False}},
        "opens no thought",
        "messages",
    ),
}


@pytest.mark.parametrize("path", [CHAT, "/tokenize"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_gone_on_with_is_refused(server: Server, path: str, name: str) -> None:
    messages, members, reason, param = REFUSED[name]
    body = {"messages": messages, "continue_final_message": True, **members}
    reply = server.post(path, body)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert reason in error["message"] and error["param"].startswith(param)


def test_echo_is_refused_by_name(server: Server) -> None:
    reply = server.post(CHAT, {"messages": [USER], "echo": True})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "echo"
    assert (
        server.post(CHAT, {"messages": [USER], "echo": False, "max_tokens": 1}).status_code == 200
    )
