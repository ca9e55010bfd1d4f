"""What the server keeps of answers: written turns and stored responses, each within bounds."""

from dataclasses import replace
from typing import Any

import pytest

from ninfer.request import (
    ContentPart,
    FinishReason,
    GenerationResult,
    Message,
    PreparedPrompt,
    ToolCall,
    Usage,
)
from ninfer.server import turns
from ninfer.server.responses.store import ResponseStore, new_record
from ninfer.server.system_turns import settle_system
from ninfer.server.turns import WrittenTurns

END, MARK = 9, 8
PROMPT = PreparedPrompt("<|im_start|>assistant\n<think>\n", (1, 2), True, turn_key=b"k")
RESULT = GenerationResult(FinishReason.STOP_TOKEN, Usage(2, 3, 1), (3, 4, END), 0.0, 0.0)


def memory() -> WrittenTurns:
    return WrittenTurns(frozenset({END, MARK}), END)


def assistant(text: str, reasoning: str | None = None, *calls: ToolCall) -> Message:
    return Message("assistant", (ContentPart("text", text),), reasoning, calls)


def test_a_turn_is_found_by_its_visible_text() -> None:
    known = memory()
    call = ToolCall("f", {"n": 1.0, "o": {"b": [2.5], "a": 3}}, "call_1")
    known.keep(1, PROMPT, "T\n", "text ", replace(RESULT, tool_calls=(call,)))
    recall = known.recall_for(1)
    returned = ToolCall("f", {"o": {"a": 3, "b": [2.5]}, "n": 1}, "toolu_1")
    for reasoning in (None, "", "T"):
        found = recall(b"k", assistant("text", reasoning, returned))
        assert found is not None
        assert (found.opening, found.token_ids) == ("assistant\n<think>\n", (3, 4, END))
    assert recall(b"k", assistant("text", "another thought", returned)) is None
    assert recall(b"k", assistant("other", None, returned)) is None
    assert recall(b"k", assistant("text")) is None
    assert recall(b"k", assistant("text", None, replace(returned, arguments={"n": 2}))) is None
    assert recall(b"other", assistant("text", None, returned)) is None


def test_a_thought_may_come_back_within_the_text() -> None:
    """In tags, as Open WebUI does; where there is a member for it, tags are the text's own."""
    known = memory()
    known.keep(1, PROMPT, "T\n", "text", RESULT)
    recall = known.recall_for(1)
    for text in ("<think>T</think>text", "<think>\nT\n</think>\n\ntext", "T</think>text"):
        assert recall(b"k", assistant(text)), text
    assert recall(b"k", assistant("<think>other</think>text")) is None
    assert recall(b"k", assistant("<think>T</think>text", "")) is None
    assert recall(b"k", assistant("<think>T</think>other")) is None


def test_nobody_gets_the_thoughts_of_another_key() -> None:
    known = memory()
    known.keep(1, PROMPT, "T", "text", RESULT)
    assert known.recall_for(2)(b"k", assistant("text")) is None


@pytest.mark.parametrize(
    ("prompt", "result"),
    [
        (replace(PROMPT, turn_key=b""), RESULT),
        (PROMPT, replace(RESULT, finish_reason=FinishReason.OUTPUT_LIMIT)),
        (PROMPT, replace(RESULT, finish_reason=FinishReason.STOP_STRING)),
        (PROMPT, replace(RESULT, token_ids=(3, 7))),
        (PROMPT, replace(RESULT, token_ids=(MARK, END))),
    ],
    ids=["no turn", "cut", "stopped", "other end", "control token"],
)
def test_answers_that_could_not_stand_there_are_not_kept(
    prompt: PreparedPrompt, result: GenerationResult
) -> None:
    known = memory()
    known.keep(1, prompt, "", "text", result)
    assert known.recall_for(1)(b"k", assistant("text")) is None


def test_the_oldest_turns_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST_BYTES", 3_200)
    known = memory()
    recall = known.recall_for(1)
    for number in range(3):
        known.keep(1, PROMPT, "", f"text {number}", RESULT)
    assert recall(b"k", assistant("text 0"))
    known.keep(1, PROMPT, "", "text 3", RESULT)
    kept = [n for n in range(4) if recall(b"k", assistant(f"text {n}"))]
    assert kept == [0, 2, 3]


def test_system_messages_lead_or_join_the_turn_before_them() -> None:
    def said(role: Any, text: str) -> Message:
        return Message(role, (ContentPart("text", text),))

    given = [
        said("user", "a"),
        said("system", "b"),
        said("assistant", "c"),
        said("system", "d"),
        said("tool", "e"),
        said("system", "f"),
        Message("system"),
    ]
    settled = settle_system(given)
    assert [m.role for m in settled] == ["user", "system", "assistant", "user", "tool"]
    assert "".join(part.text for part in settled[-1].content) == "e\n\nf"


def response(name: str, text: str = "") -> dict[str, Any]:
    return {"id": name, "output": [{"type": "message", "id": f"msg_{name}", "text": text}]}


def item(name: str) -> dict[str, Any]:
    return {"type": "message", "id": name, "role": "user", "content": name}


def test_a_chain_holds_all_items_even_when_its_beginning_has_gone() -> None:
    store = ResponseStore(2, 1 << 20)
    first = new_record(1, response("a"), [item("q1")], None)
    second = new_record(1, response("b"), [item("q2")], first)
    third = new_record(1, response("c"), [item("q3")], second)
    for record in (first, second, third):
        store.put(record)
    assert store.get(1, "a") is None
    found = store.get(1, "c")
    assert found is not None
    assert [i["id"] for i in found.items] == ["q1", "msg_a", "q2", "msg_b", "q3", "msg_c"]


def test_each_key_sees_its_own() -> None:
    store = ResponseStore(4, 1 << 20)
    store.put(new_record(1, response("a"), [item("q")], None))
    assert store.get(2, "a") is None
    assert store.item(2, "q") is None
    assert not store.delete(2, "a")
    assert store.item(1, "q") == item("q")
    assert store.item(1, "msg_a") is not None
    assert store.delete(1, "a")
    assert (store.get(1, "a"), store.bytes, len(store)) == (None, 0, 0)


def test_the_store_stays_within_its_bytes() -> None:
    store = ResponseStore(1000, 5_000)
    for number in range(50):
        store.put(new_record(1, response(f"r{number}", "x" * 500), [], None))
        assert store.bytes <= 5_000
    assert 5 < len(store) < 10
    assert store.get(1, "r49") is not None
    # The least recently used goes first.
    oldest = min(int(name[1:]) for name in (f"r{n}" for n in range(50)) if store.get(1, name))
    assert store.get(1, f"r{oldest}") is not None
    for number in range(3):
        store.put(new_record(1, response(f"s{number}", "x" * 500), [], None))
    assert store.get(1, f"r{oldest}") is not None
    store.put(new_record(1, response("huge", "x" * 6_000), [], None))
    assert store.get(1, "huge") is None
    assert store.get(1, "s2") is not None
