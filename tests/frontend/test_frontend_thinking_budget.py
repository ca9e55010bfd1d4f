"""The thinking budget: what it forces, when, and what it leaves alone."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from ninfer.errors import GenerationError
from ninfer.frontend import Frontend
from ninfer.frontend.thinking_budget import CLOSING, ThinkingBudget
from ninfer.request import TemplateOptions


def text_of(frontend: Frontend, ids: list[int]) -> str:
    return b"".join(map(frontend.tokenizer.token_bytes, ids)).decode(errors="replace")


def driven(
    frontend: Frontend, budget: int, wanted: list[int], tools: Collection[str] = ("f",)
) -> list[int]:
    """What comes out when a model wants these ids, one for each free place."""
    forcer = ThinkingBudget(frontend.tokenizer, budget, tools)
    left, ids = list(wanted), []
    while left or forcer.forced() is not None:
        token = forcer.forced()
        if token is None:
            token = left.pop(0)
        ids.append(token)
        forcer.advance(token)
    return ids


@pytest.mark.parametrize("budget", [0, 1, 7])
def test_a_thought_is_closed_after_its_budget(frontend: Frontend, budget: int) -> None:
    wanted = frontend.tokenizer.encode("x" * 20)
    ids = driven(frontend, budget, wanted)
    assert ids[:budget] == wanted[:budget]
    closing = frontend.tokenizer.encode(CLOSING)
    assert ids[budget : budget + len(closing)] == closing
    assert ids[budget + len(closing) :] == wanted[budget:]
    assert text_of(frontend, ids).count("</think>") == 1


@pytest.mark.parametrize("written", ["</think>", "<", "</th"])
def test_a_thought_that_closes_itself_is_left_alone(frontend: Frontend, written: str) -> None:
    """Closed by the tag's own id, or spelled out of ordinary ones."""
    encode = frontend.tokenizer.encode
    rest = "</think>"[len(written) :]
    wanted = [*encode("abc" + written), *encode(rest), *encode("answer, longer than the budget")]
    assert driven(frontend, 16, wanted) == wanted


def test_a_tag_that_came_too_late_does_not_count(frontend: Frontend) -> None:
    wanted = frontend.tokenizer.encode("abcdefgh") + frontend.tokenizer.encode("</think>")
    text = text_of(frontend, driven(frontend, 4, wanted))
    before, after = text_of(frontend, wanted[:4]), text_of(frontend, wanted[4:])
    assert text == before + CLOSING + after and after.endswith("</think>")


@pytest.mark.parametrize("space", ["", "\n", " \n\t "])
@pytest.mark.parametrize("before", ["", "prose that names <tool_call> first "])
def test_a_tool_call_ends_the_budget_phase(frontend: Frontend, space: str, before: str) -> None:
    """vLLM report 44812: nothing is inserted into a call, nor behind one."""
    wanted = frontend.tokenizer.encode(f"{before}<tool_call>{space}<function=f>" + "x" * 50)
    call = len(frontend.tokenizer.encode(f"{before}<tool_call>"))
    for budget in range(call, call + 20):
        assert driven(frontend, budget, wanted) == wanted


@pytest.mark.parametrize(
    "follows", [" tag is prose", "\n<func", " " * 65 + "<function=f>", "<function=other>"]
)
def test_a_tag_in_prose_only_delays_the_close(frontend: Frontend, follows: str) -> None:
    """So does a call of something that is no tool of the request: its text stays a thought."""
    wanted = frontend.tokenizer.encode(f"a<tool_call>{follows} and so on without end")
    budget = len(frontend.tokenizer.encode("a<tool_call>"))
    text = text_of(frontend, driven(frontend, budget, wanted))
    assert CLOSING in text
    assert text.index(CLOSING) - len("a<tool_call>") <= len(follows) + 8


def test_without_tools_no_tag_delays_the_close(frontend: Frontend) -> None:
    wanted = frontend.tokenizer.encode("a<tool_call><function=f>x")
    budget = len(frontend.tokenizer.encode("a<tool_call>"))
    text = text_of(frontend, driven(frontend, budget, wanted, ()))
    assert text == f"a<tool_call>{CLOSING}<function=f>x"


@pytest.mark.parametrize("name", ["f", "other"])
def test_the_answer_is_cut_where_the_budget_sees_the_end(frontend: Frontend, name: str) -> None:
    """A closing is in the output exactly if the output's parser still shows a thought."""
    tools = ({"type": "function", "function": {"name": "f", "parameters": {}}},)
    prompt = replace(
        frontend.prepare_text("hi", TemplateOptions(enable_thinking=True)), tools=tools
    )
    wanted = frontend.tokenizer.encode(f"a<tool_call>\n<function={name}>\n" + "x" * 50)
    forcer = frontend.new_thinking_budget(prompt, len(frontend.tokenizer.encode("a<tool_call>")))
    parser = frontend.new_output_parser(prompt)
    assert forcer is not None
    for token in wanted:
        parser.feed((token,))
        if forcer.forced() is not None:
            break
        forcer.advance(token)
    assert (forcer.forced() is None) == (parser.channel == "content") == (name == "f")


def test_a_character_is_finished_first(frontend: Frontend) -> None:
    """No replacement character is shown because of the budget."""
    wanted = [index for c in "ab\u4e2d\U0001f600z".encode() for index in [byte_id(frontend, c)]]
    for budget, cut in ((3, "ab\u4e2d"), (4, "ab\u4e2d"), (6, "ab\u4e2d\U0001f600")):
        text = text_of(frontend, driven(frontend, budget, wanted))
        assert text.startswith(cut + CLOSING)


def test_bytes_that_never_make_a_character_delay_it_by_three(frontend: Frontend) -> None:
    wanted = [byte_id(frontend, 0xE4)] * 40
    ids = driven(frontend, 5, wanted)
    assert ids[8:] == frontend.tokenizer.encode(CLOSING) + wanted[8:]


def byte_id(frontend: Frontend, byte: int) -> int:
    ids = range(frontend.tokenizer.addressable)
    return next(i for i in ids if frontend.tokenizer.token_bytes(i) == bytes([byte]))


def test_only_a_prompt_that_opens_a_thought_has_a_budget(frontend: Frontend) -> None:
    thinks = frontend.prepare_text("hi", TemplateOptions(enable_thinking=True))
    assert frontend.new_thinking_budget(thinks, 5) is not None
    answers = frontend.prepare_text("hi", TemplateOptions(enable_thinking=False))
    assert frontend.new_thinking_budget(answers, 5) is None


def test_an_id_outside_the_vocabulary_is_refused(frontend: Frontend) -> None:
    forcer = ThinkingBudget(frontend.tokenizer, 5)
    with pytest.raises(GenerationError, match="token id 99999 is outside the vocabulary"):
        forcer.advance(99999)
