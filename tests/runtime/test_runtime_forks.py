"""Sequences that share one prompt: computed once, the same tokens as alone, nothing left behind."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_runtime_batching import BASE, BIASED, GREEDY, SAMPLED
from test_runtime_generation import load, prompt_of

from ninfer.errors import CapacityError, GenerationError
from ninfer.request import SamplingParams
from ninfer.runtime import Runtime, Sequence, SequenceRequest, Status
from ninfer.runtime.prefix_reuse import PrefixOptions

MakeRuntime = Callable[..., Runtime]


@pytest.fixture(scope="module", params=["dense"])
def runtime_of(request: pytest.FixtureRequest, micro_artifacts: dict[str, Path]) -> MakeRuntime:
    weights, config = load(micro_artifacts[request.param])

    def make(prefix: PrefixOptions | None = None, **changes: object) -> Runtime:
        return Runtime(weights, config, replace(BASE, **changes), prefix=prefix)

    return make


def requests_of(
    length: int, count: int, sampling: SamplingParams = SAMPLED, tokens: int = 12, **rest: object
) -> list[SequenceRequest]:
    prompt = tuple(prompt_of(length))
    return [
        SequenceRequest(prompt, replace(sampling, seed=seed), tokens, logprobs=1, **rest)
        for seed in range(count)
    ]


def finish(runtime: Runtime, sequences: list[Sequence]) -> list[tuple]:
    found = {sequence: ([], []) for sequence in sequences}
    while runtime.has_work:
        for progress in runtime.step():
            assert progress.error is None
            found[progress.sequence][0].extend(progress.tokens)
            found[progress.sequence][1].extend(progress.logprobs)
        runtime.check()
    assert all(sequence.status is Status.FINISHED for sequence in sequences)
    assert runtime.prefixes or runtime.pages.free_count == runtime.pages.capacity
    return list(found.values())


def alone(runtime: Runtime, requests: list[SequenceRequest]) -> list[tuple]:
    return [finish(runtime, [runtime.submit(request)])[0] for request in requests]


def prompt_rows(runtime: Runtime) -> list[int]:
    """Rows of each later pass that belong to prompts."""
    counts: list[int] = []
    original = runtime._scheduler.plan

    def plan():
        pieces = original()
        counts.append(sum(p.count for p in pieces if p.sequence.cached < p.sequence.prompt_length))
        return pieces

    runtime._scheduler.plan = plan
    return counts


@pytest.mark.parametrize("slots", [2, 8])
@pytest.mark.parametrize("length", [1, 64, 65, 300])
def test_each_gives_what_its_seed_gives_alone(
    runtime_of: MakeRuntime, length: int, slots: int
) -> None:
    """On the page border and off it; with a place for each, and with fewer."""
    runtime = runtime_of(state_slots=slots)
    requests = requests_of(length, 5, BIASED if length == 65 else SAMPLED)
    expected = alone(runtime_of(), requests)
    counts = prompt_rows(runtime)
    assert finish(runtime, runtime.submit_many(requests)) == expected
    assert sum(counts) == length, "the prompt was computed more than once"
    assert len({tuple(tokens) for tokens, _ in expected}) > 1


def test_greedy_copies_are_equal(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of()
    found = finish(runtime, runtime.submit_many(requests_of(70, 3, GREEDY)))
    assert found[0] == found[1] == found[2]


def test_full_pages_are_shared_and_the_last_one_is_copied(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of()
    sequences = runtime.submit_many(requests_of(150, 3))
    while not all(sequence.decodes for sequence in sequences):
        runtime.step()
        runtime.check()
    first, *others = (sequence.pages[:3] for sequence in sequences)
    assert all(pages[:2] == first[:2] for pages in others)
    assert len({first[2], *(pages[2] for pages in others)}) == 3
    assert [runtime.pages.owners(page) for page in first] == [3, 3, 1]
    assert runtime.pages.capacity - runtime.pages.free_count == 5
    assert len({sequence.state_slot for sequence in sequences}) == 3


def test_prompt_logprobs_are_those_of_all(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of(state_slots=2)
    sequences = runtime.submit_many(requests_of(150, 4, prompt_logprobs=2))
    finish(runtime, sequences)
    (expected,) = (runtime.submit(requests_of(150, 1, prompt_logprobs=2)[0]) for _ in "1")
    finish(runtime, [expected])
    assert all(s.prompt_logprobs == expected.prompt_logprobs for s in sequences)
    assert len(expected.prompt_logprobs) == 150


def test_few_pages_cost_time_only(runtime_of: MakeRuntime) -> None:
    """Forks give way before running sequences do; then their heirs compute the prompt."""
    requests = requests_of(300, 4, tokens=40)
    expected = alone(runtime_of(), requests)
    for pages in (6, 7, 9, 12):
        runtime = runtime_of(pages=pages, state_slots=3)
        assert finish(runtime, runtime.submit_many(requests)) == expected


def test_a_dropped_fork_changes_nothing(runtime_of: MakeRuntime) -> None:
    requests = requests_of(150, 4)
    runtime = runtime_of(state_slots=1)
    sequences = runtime.submit_many(requests)
    found = {sequence: [] for sequence in sequences}
    counts = prompt_rows(runtime)
    drops = 0
    while runtime.has_work:
        for progress in runtime.step():
            found[progress.sequence] += progress.tokens
        drops += runtime.forks.drop()
        runtime.check()
    assert drops == 1 and sum(counts) == 600
    assert list(found.values()) == [tokens for tokens, _ in alone(runtime_of(), requests)]


def test_heirs_over_a_warm_prefix(runtime_of: MakeRuntime) -> None:
    requests = requests_of(200, 3)
    runtime = runtime_of(PrefixOptions(1 << 24, b"salt"))
    expected = alone(runtime_of(), requests)
    for _ in range(3):
        assert finish(runtime, runtime.submit_many(requests)) == expected


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("victim", [0, 1, 3])
def test_cancelling_one_leaves_the_others_alone(
    runtime_of: MakeRuntime, steps: int, victim: int
) -> None:
    """The one that computes the prompt, or one that waits for it; before, at and after the fork."""
    runtime = runtime_of(prefill_chunk=64, state_slots=2)
    requests = requests_of(150, 4)
    expected = alone(runtime_of(), requests)
    sequences = runtime.submit_many(requests)
    found = {sequence: [] for sequence in sequences}
    for _ in range(steps):
        for progress in runtime.step():
            found[progress.sequence] += progress.tokens
    runtime.cancel(sequences[victim])
    runtime.check()
    while runtime.has_work:
        for progress in runtime.step():
            found[progress.sequence] += progress.tokens
        runtime.check()
    for index, (sequence, (tokens, _)) in enumerate(zip(sequences, expected, strict=True)):
        if index != victim:
            assert found[sequence] == tokens
    assert runtime.pages.free_count == runtime.pages.capacity
    assert runtime.slots.free_count == 2


def test_random_cancellation_leaves_nothing(runtime_of: MakeRuntime) -> None:
    runtime, draw = runtime_of(state_slots=3, pages=14, max_pending=1000), random.Random(7)
    live: list[Sequence] = []
    for _ in range(60):
        count, length = draw.randint(1, 5), draw.choice((1, 64, 65, 130))
        live += runtime.submit_many(requests_of(length, count, tokens=draw.randint(1, 8)))
        for _ in range(draw.randint(0, 4)):
            runtime.step()
            runtime.check()
        for sequence in draw.sample(live, draw.randint(0, len(live))):
            runtime.cancel(sequence)
            runtime.check()
        live = [sequence for sequence in live if sequence.status is not Status.FINISHED]
    for sequence in live:
        runtime.cancel(sequence)
    assert not runtime.has_work
    assert runtime.pages.free_count == runtime.pages.capacity
    assert runtime.slots.free_count == 3


def test_a_group_that_finds_no_place_is_refused_whole(runtime_of: MakeRuntime) -> None:
    runtime = runtime_of(state_slots=2, max_pending=2)
    with pytest.raises(CapacityError, match="0 requests are waiting already"):
        runtime.submit_many(requests_of(10, 5))
    assert not runtime.has_work
    assert len(finish(runtime, runtime.submit_many(requests_of(10, 4)))) == 4


def test_stops_at_the_first_token_are_each_ones_own(runtime_of: MakeRuntime) -> None:
    requests = requests_of(100, 6)
    firsts = [tokens[0] for tokens, _ in alone(runtime_of(), requests)]
    stopped = [replace(r, stop_ids=frozenset({firsts[0], firsts[2]})) for r in requests]
    expected = alone(runtime_of(), stopped)
    runtime = runtime_of()
    assert finish(runtime, runtime.submit_many(stopped)) == expected
    assert {len(tokens) for tokens, _ in expected} > {1}


def test_a_prompt_that_is_not_finite_ends_them_all(micro_artifacts: dict[str, Path]) -> None:
    weights, config = load(micro_artifacts["dense"])
    embedding = weights.embedding.clone()
    embedding[17] = float("nan")
    runtime = Runtime(replace(weights, embedding=embedding), config, BASE)
    sequences = runtime.submit_many([SequenceRequest((1, 17), GREEDY, 3)] * 3)
    errors = {}
    while runtime.has_work:
        errors.update({p.sequence: p.error for p in runtime.step()})
        runtime.check()
    assert set(errors) == set(sequences)
    assert all(isinstance(error, GenerationError) for error in errors.values())
    assert runtime.pages.free_count == runtime.pages.capacity
