"""The loop guard: the first token that completes a cycle, found in a stream and in blocks."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_runtime_batching import BASE, GREEDY, SAMPLED
from test_runtime_generation import load

from ninfer.request import FinishReason, TokenForcer
from ninfer.runtime import Runtime, SequenceRequest
from ninfer.runtime.loop_guard import COPIES, PERIODS, TOKENS, LoopGuard


def first_cycle(ids: list[int]) -> int | None:
    """The same by definition, from the whole text: how many tokens until a cycle is complete."""
    for end in range(TOKENS, len(ids) + 1):
        for period in range(1, PERIODS + 1):
            length = max(COPIES * period, TOKENS)
            part = ids[end - length : end] if length <= end else []
            if part and part[period:] == part[:-period]:
                return end
    return None


def found_by_guard(ids: list[int]) -> int | None:
    guard = LoopGuard()
    return next((count for count, token in enumerate(ids, 1) if guard.advance(token)), None)


@pytest.mark.parametrize("period", [1, 2, 3, 40, 63, 64, 65, 100, 255, 256])
@pytest.mark.parametrize("before", [0, 1, 300, 9000])
def test_a_cycle_is_found_at_its_last_needed_token(period: int, before: int) -> None:
    draw = random.Random(period + before)
    cycle = [draw.randrange(10**6) for _ in range(period)]
    ids = [draw.randrange(10**6) for _ in range(before)] + cycle * (1100 // period + 1)
    assert found_by_guard(ids) == before + max(COPIES * period, TOKENS)


def test_what_repeats_less_or_more_slowly_is_left_alone() -> None:
    draw = random.Random(1)
    for period in (1, 7, 40, 64, 256):
        cycle = [draw.randrange(10**6) for _ in range(period)]
        part = (cycle * 300)[: max(COPIES * period, TOKENS) - 1]
        ids = [token for gap in range(20) for token in (*part, -1 - gap)]
        assert found_by_guard(ids) is None
    assert found_by_guard([draw.randrange(10**6) for _ in range(PERIODS + 1)] * 20) is None
    assert found_by_guard([draw.randrange(10**6) for _ in range(20_000)]) is None


def test_it_agrees_with_the_definition_on_texts_of_few_words() -> None:
    draw = random.Random(2)
    found = []
    for _ in range(30):
        ids: list[int] = []
        while len(ids) < 900:
            words = draw.choices(range(3), k=draw.choice((1, 2, 5, 30, 90)))
            ids += words * draw.choice((1, 2, 5, 40, 150))
        found.append(found_by_guard(ids[:1000]))
        assert found[-1] == first_cycle(ids[:1000])
    assert 5 < sum(count is not None for count in found) < 30


@pytest.fixture(scope="module")
def runtime_of(micro_artifacts: dict[str, Path]) -> Callable[..., Runtime]:
    weights, config = load(micro_artifacts["dense"])
    return lambda **changes: Runtime(weights, config, replace(BASE, max_context=1024, **changes))


Scripted = Callable[[list[int]], TokenForcer]


def written(
    runtime: Runtime, scripted: Scripted, script: list[int], drafts: int, **rest: object
) -> tuple[list[int], FinishReason | None]:
    sequence = runtime.submit(
        SequenceRequest((1, 2, 3), SAMPLED, 800, forcer=scripted(script), **rest)
    )
    while runtime.has_work:
        if sequence.decodes:
            sequence.drafts = script[sequence.generated :][:drafts]
        for progress in runtime.step():
            assert progress.error is None
    runtime.check()
    return sequence.tokens[3:], sequence.finish


@pytest.mark.parametrize("drafts", [0, 1, 2, 3])
def test_b5_a_paragraph_without_end_is_ended(
    runtime_of: Callable[..., Runtime], scripted: Scripted, drafts: int
) -> None:
    """B5: 40 tokens over and over end at the same token, whatever blocks of drafts they come in."""
    draw = random.Random(5)
    script = draw.choices(range(500), k=17) + draw.choices(range(500), k=40) * 30
    tokens, finish = written(runtime_of(), scripted, script, drafts, loop_guard=True)
    assert finish is FinishReason.LOOP_GUARD
    assert tokens == script[: 17 + TOKENS]


def test_it_is_off_by_default(runtime_of: Callable[..., Runtime], scripted: Scripted) -> None:
    tokens, finish = written(runtime_of(), scripted, [7] * 900, 3)
    assert (len(tokens), finish) == (800, FinishReason.OUTPUT_LIMIT)


def test_a_stop_token_that_completes_a_cycle_is_a_stop(
    runtime_of: Callable[..., Runtime], scripted: Scripted
) -> None:
    script = [7] * (TOKENS - 1) + [7]
    rest = {"loop_guard": True, "stop_ids": frozenset({7})}
    assert written(runtime_of(), scripted, script, 3, **rest) == ([7], FinishReason.STOP_TOKEN)


def test_it_says_so_at_the_output_limit_too(
    runtime_of: Callable[..., Runtime], scripted: Scripted
) -> None:
    runtime = runtime_of()
    request = SequenceRequest((1,), GREEDY, TOKENS, forcer=scripted([7] * 900), loop_guard=True)
    sequence = runtime.submit(request)
    while runtime.has_work:
        runtime.step()
    assert (sequence.generated, sequence.finish) == (TOKENS, FinishReason.LOOP_GUARD)


def test_preemption_does_not_move_it(
    runtime_of: Callable[..., Runtime], scripted: Scripted
) -> None:
    """Tokens that are computed again are not counted again."""
    script = [3, 4, 5] * 300
    runtime = runtime_of(pages=6)
    sequences = [
        runtime.submit(
            SequenceRequest((1, i), GREEDY, 380, forcer=scripted(script), loop_guard=True)
        )
        for i in range(2)
    ]
    while runtime.has_work:
        runtime.step()
    assert [s.generated for s in sequences] == [TOKENS, TOKENS]
    assert sum(s.preemptions for s in sequences) > 0
