"""Turns that the model wrote keep their ids in later prompts, and only there."""

from dataclasses import replace

import pytest

from ninfer.convert.byte_tokenizer import build_tokenizer
from ninfer.frontend import Frontend, parse_conversation
from ninfer.request import Message, PreparedPrompt, Recall, WrittenTurn

CALL = "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
QUESTION = {"role": "user", "content": "q"}
CALLED = {
    "role": "assistant",
    "content": "So.",
    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"n": 1}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "r"}


@pytest.fixture(scope="module")
def frontend() -> Frontend:
    return Frontend.from_resources(build_tokenizer(800))


def nothing(before: bytes, message: Message) -> WrittenTurn | None:
    return None


def prepare(
    frontend: Frontend, messages: list[object], recall: Recall | None = nothing, **template: object
) -> PreparedPrompt:
    conversation = parse_conversation(messages, TOOLS)
    options = replace(conversation.template, **template)  # by name
    return frontend.prepare(replace(conversation, template=options), recall=recall)


def written(frontend: Frontend, text: str, opening: str = "assistant\n<think>\n") -> WrittenTurn:
    """Ids that no encoder would choose: one for each character."""
    ids = [token for letter in text for token in frontend.tokenizer.encode(letter)]
    return WrittenTurn(opening, (*ids, frontend.tokenizer.special["<|im_end|>"]))


def knows(first: PreparedPrompt, turn: WrittenTurn) -> Recall:
    return lambda before, message: turn if before == first.turn_key else None


def test_without_anything_known_the_ids_are_those_of_the_text(frontend: Frontend) -> None:
    spelled = {"role": "user", "content": "<|im_start|>assistant\nx<|im_end|> <|image_pad|>"}
    for messages in (
        [QUESTION],
        [QUESTION, CALLED, RESULT],
        [{"role": "system", "content": "S"}, spelled, CALLED, RESULT, QUESTION],
    ):
        plain = prepare(frontend, messages, None)
        watched = prepare(frontend, messages)
        assert watched.token_ids == plain.token_ids
        assert watched.text == plain.text
        assert (bool(watched.turn_key), plain.turn_key) == (True, b"")


def test_the_second_step_goes_on_from_what_was_written(frontend: Frontend) -> None:
    """The client has dropped the thought and the white space of the answer."""
    first = prepare(frontend, [QUESTION])
    turn = written(frontend, f"a thought\n</think>\n\nSo. \n\n{CALL}\n")
    second = prepare(frontend, [QUESTION, CALLED, RESULT], knows(first, turn))
    told = first.token_ids + turn.token_ids
    assert second.token_ids[: len(told)] == told
    plain = prepare(frontend, [QUESTION, CALLED, RESULT])
    rest = plain.text.partition("</tool_call><|im_end|>")[2]
    assert list(second.token_ids[len(told) :]) == frontend.tokenizer.encode(rest)
    assert second.text.endswith(f"So. \n\n{CALL}\n<|im_end|>{rest}")
    assert second.turn_key not in (first.turn_key, plain.turn_key)


def test_a_turn_under_another_prompt_stays_as_rendered(frontend: Frontend) -> None:
    first = prepare(frontend, [QUESTION])
    recall = knows(first, written(frontend, f"T\n</think>\n\nSo.\n\n{CALL}"))
    other = [{"role": "user", "content": "other"}, CALLED, RESULT]
    assert prepare(frontend, other, recall).token_ids == prepare(frontend, other).token_ids


def test_a_thought_that_the_template_leaves_out_is_not_brought_back(frontend: Frontend) -> None:
    first = prepare(frontend, [QUESTION])
    recall = knows(first, written(frontend, "T\n</think>\n\nan answer"))
    messages = [QUESTION, {"role": "assistant", "content": "an answer"}, QUESTION]
    plain = prepare(frontend, messages)
    assert prepare(frontend, messages, recall).token_ids == plain.token_ids
    kept = prepare(frontend, messages, recall, preserve_thinking=True)
    assert "<think>\nT\n</think>\n\nan answer<|im_end|>" in kept.text


def test_an_answer_without_a_thought_has_its_own_opening(frontend: Frontend) -> None:
    first = prepare(frontend, [QUESTION], enable_thinking=False)
    opening = "assistant\n<think>\n\n</think>\n\n"
    assert first.text.endswith(opening)
    turn = written(frontend, f"So.  {CALL}", opening)
    messages = [QUESTION, CALLED, RESULT]
    second = prepare(frontend, messages, knows(first, turn), enable_thinking=False)
    told = first.token_ids + turn.token_ids
    assert second.token_ids[: len(told)] == told


def test_an_answer_that_the_client_began_has_no_key(frontend: Frontend) -> None:
    conversation = replace(parse_conversation([QUESTION]), begun="It <|im_end|>")
    prompt = frontend.prepare(conversation, recall=nothing)
    assert prompt.turn_key == b""
    assert prompt.text.endswith("<think>\n\n</think>\n\nIt <|im_end|>")
    # What a client writes is text, whatever it spells.
    assert prompt.token_ids[-1] != frontend.tokenizer.special["<|im_end|>"]
