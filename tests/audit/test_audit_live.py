"""Verdicts on answers as they end: loops by ids, forms by reading, endings in one set of words."""

import time

import pytest

from ninfer.audit.live import LiveVerdict, live_verdict
from ninfer.audit.termination import Ending
from ninfer.request import (
    ChoiceSpec,
    ConstraintSpec,
    FinishReason,
    GenerationResult,
    JsonObjectSpec,
    JsonSchemaSpec,
    RegexSpec,
    ToolCall,
    Usage,
)


def result(
    ids: tuple[int, ...] = (1, 2, 3),
    reason: FinishReason = FinishReason.STOP_TOKEN,
    calls: tuple[ToolCall, ...] = (),
) -> GenerationResult:
    return GenerationResult(reason, Usage(1, len(ids), 0), ids, 0.1, 0.2, tool_calls=calls)


@pytest.mark.parametrize(
    ("given", "content", "word"),
    [
        (result(), "fine", "usable"),
        (result(reason=FinishReason.STOP_STRING), "fine", "usable"),
        (result(), " ", "empty"),
        (result(calls=(ToolCall("f", {}),)), "", "usable"),
        (result(reason=FinishReason.OUTPUT_LIMIT), "cut", "output limit"),
        (result(reason=FinishReason.CONTEXT_CAPACITY), "cut", "context full"),
        (result(reason=FinishReason.LOOP_GUARD), "x", "loop guard"),
        (result((7, *(1, 2, 3) * 200), FinishReason.OUTPUT_LIMIT), "x", "loop"),
        (result((*range(300), *(1, 2, 3) * 90)), "x", "loop"),
        (result((*(1, 2, 3) * 90, *range(900))), "x", "usable"),
    ],
)
def test_verdicts(given: GenerationResult, content: str, word: str) -> None:
    assert live_verdict(given, content).word == word


@pytest.mark.parametrize(
    ("constraint", "content", "kept"),
    [
        (None, "x", None),
        (RegexSpec("x"), "y", None),
        (JsonObjectSpec(), '{"a": 1}', True),
        (JsonObjectSpec(), '{"a": 1', False),
        (JsonObjectSpec(), "[1]", False),
        (JsonSchemaSpec({"type": "array"}), "[1]", True),
        (JsonSchemaSpec({"type": "array"}), "[1", False),
        (ChoiceSpec(("yes", "no")), "yes", True),
        (ChoiceSpec(("yes", "no")), "yes.", False),
    ],
)
def test_forms(constraint: ConstraintSpec | None, content: str, kept: bool | None) -> None:
    verdict = live_verdict(result(), content, constraint)
    assert verdict.kept is kept
    assert verdict.word == ("contract broken" if kept is False else "usable")


def test_words_for_people() -> None:
    assert str(LiveVerdict(Ending.NATURAL, empty=False)) == "usable"
    assert str(LiveVerdict(Ending.LIMIT, empty=False)) == "not usable: output limit"
    found = live_verdict(result((5,) * 400), "x")
    assert str(found) == "a loop of 1 token, 100% of the answer"
    assert found.to_json()["loop_period"] == 1


def test_the_server_does_not_wait_for_it() -> None:
    """8,000 ids without a loop, some milliseconds; it is on the loop of the server's events."""
    ids = tuple(n * 7919 % 151_643 for n in range(8000))
    start = time.process_time()
    for _ in range(20):
        live_verdict(result(ids), "x")
    assert (time.process_time() - start) / 20 < 0.01
