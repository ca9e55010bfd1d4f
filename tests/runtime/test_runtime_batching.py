"""Many sequences at once: the same tokens as alone, whatever the company, cuts and preemptions."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_runtime_generation import load

from ninfer.request import FinishReason, LogitBias, SamplingParams, TokenForcer
from ninfer.runtime import Runtime, RuntimeConfig, Sequence, SequenceRequest, Status

GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=1.0, top_p=0.95, top_k=20, seed=9)
PENALISED = replace(SAMPLED, presence_penalty=1.5, frequency_penalty=0.3)
REPELLED = replace(SAMPLED, repetition_penalty=1.3, top_k=200)
BIASED = replace(PENALISED, logit_bias=(LogitBias(5, 3.0), LogitBias(77, -100.0)))
SETTINGS = (GREEDY, SAMPLED, PENALISED, REPELLED, BIASED)
BASE = RuntimeConfig(
    device=torch.device("cpu"),
    dtype=torch.float32,
    kv_format="bf16",
    max_context=512,
    pages=200,
    state_slots=8,
    prefill_chunk=128,
    window=4,
    max_pending=100,
)
MakeRuntime = Callable[..., Runtime]


@pytest.fixture(scope="module", params=["dense", "moe"])
def runtime_of(request: pytest.FixtureRequest, micro_artifacts: dict[str, Path]) -> MakeRuntime:
    weights, config = load(micro_artifacts[request.param])
    return lambda **changes: Runtime(weights, config, replace(BASE, **changes))


def request_of(index: int, draw: random.Random) -> SequenceRequest:
    length = draw.choice((1, 2, 5, 63, 64, 65, 100, 127, 128, 129, 200, 300))
    return SequenceRequest(
        prompt=tuple(draw.randrange(504) for _ in range(length)),
        sampling=replace(SETTINGS[index % len(SETTINGS)], seed=index),
        max_tokens=draw.randint(1, 40),
    )


def drain(runtime: Runtime, requests: Iterable[SequenceRequest]) -> list[list[int]]:
    """Tokens of each request, all submitted at once."""
    sequences = [runtime.submit(request) for request in requests]
    tokens: dict[Sequence, list[int]] = {sequence: [] for sequence in sequences}
    while runtime.has_work:
        for progress in runtime.step():
            assert progress.error is None
            tokens[progress.sequence] += progress.tokens
        runtime.check()
    assert runtime.pages.free_count == runtime.pages.capacity
    assert all(sequence.status is Status.FINISHED for sequence in sequences)
    return [tokens[sequence] for sequence in sequences]


@pytest.fixture(scope="module")
def alone(runtime_of: MakeRuntime) -> tuple[list[SequenceRequest], list[list[int]]]:
    draw = random.Random(1)
    requests = [request_of(index, draw) for index in range(24)]
    runtime = runtime_of()
    return requests, [list(runtime.generate(r.prompt, r.sampling, r.max_tokens)) for r in requests]


@pytest.mark.parametrize("slots", [2, 3, 8])
def test_company_changes_nothing(
    runtime_of: MakeRuntime, alone: tuple[list[SequenceRequest], list[list[int]]], slots: int
) -> None:
    requests, expected = alone
    assert drain(runtime_of(state_slots=slots), requests) == expected


@pytest.mark.parametrize("chunk", [64, 256, 1024])
def test_chunks_change_nothing(
    runtime_of: MakeRuntime, alone: tuple[list[SequenceRequest], list[list[int]]], chunk: int
) -> None:
    requests, expected = alone
    assert drain(runtime_of(prefill_chunk=chunk), requests) == expected


def test_preemption_changes_nothing(
    runtime_of: MakeRuntime, alone: tuple[list[SequenceRequest], list[list[int]]]
) -> None:
    """With few pages the youngest give way and do their work once more."""
    requests, expected = alone
    runtime = runtime_of(pages=9)
    sequences = []
    original = runtime.submit
    runtime.submit = lambda request: sequences.append(original(request)) or sequences[-1]
    assert drain(runtime, requests) == expected
    assert sum(sequence.preemptions for sequence in sequences) > 3
    load = runtime.load()
    assert load.replays == load.preemptions == sum(s.preemptions for s in sequences)
    # Nothing is reused here, so all that anyone had lost was computed once more.
    assert load.replayed_tokens >= sum(s.lost for s in sequences) > 0
    assert load.replaying == load.prefilling == load.running == 0


def test_sixty_four_at_once(runtime_of: MakeRuntime) -> None:
    draw = random.Random(5)
    requests = [replace(request_of(index, draw), max_tokens=6) for index in range(64)]
    runtime = runtime_of(state_slots=64, pages=400)
    together = drain(runtime, requests)
    for index in (0, 1, 2, 31, 63):
        r = requests[index]
        assert together[index] == list(runtime.generate(r.prompt, r.sampling, r.max_tokens))


def test_drafts_right_and_wrong_change_nothing(
    runtime_of: MakeRuntime, alone: tuple[list[SequenceRequest], list[list[int]]]
) -> None:
    """Drafts from an oracle that is often wrong: accepted ones shorten the work, nothing else."""
    requests, expected = alone
    runtime, draw = runtime_of(), random.Random(3)
    sequences = [runtime.submit(request) for request in requests]
    truth = dict(zip(sequences, expected, strict=True))
    steps = produced = 0
    while runtime.has_work:
        for sequence in sequences:
            if sequence.decodes:
                known = truth[sequence][sequence.generated :][: draw.randint(0, 5)]
                sequence.drafts = [
                    token if draw.random() < 0.7 else draw.randrange(504) for token in known
                ]
        for progress in runtime.step():
            assert progress.error is None
            produced += len(progress.tokens)
            steps += 1
        runtime.check()
    assert [s.tokens[s.prompt_length :] for s in sequences] == expected
    assert produced > 1.3 * steps


def test_f1_a_stop_token_inside_an_accepted_block_ends_it_there(runtime_of: MakeRuntime) -> None:
    """F1: what was accepted behind the stop token is discarded, and the reason is the stop."""
    runtime = runtime_of()
    prompt = (3, 1, 4, 1, 5)
    truth = list(runtime.generate(prompt, SAMPLED, 12))
    stop = truth[3]
    first = truth.index(stop)
    sequence = runtime.submit(SequenceRequest(prompt, SAMPLED, 12, frozenset({stop})))
    last = None
    while runtime.has_work:
        if sequence.decodes:
            sequence.drafts = truth[sequence.generated : sequence.generated + 3]
        (last, *_) = [*runtime.step(), last]
    assert sequence.tokens[5:] == truth[: first + 1]
    assert last is not None and last.finish is FinishReason.STOP_TOKEN
    runtime.check()


def test_f1_a_stop_in_a_block_comes_before_the_output_limit(
    runtime_of: MakeRuntime, scripted: Callable[[list[int]], TokenForcer]
) -> None:
    """F1: six accepted tokens, a limit of five, the stop is the third."""
    script, stop = [10, 11, 99, 20, 21, 22], 99
    for stop_ids, ids, reason in (
        (frozenset({stop}), [10, 11, 99], FinishReason.STOP_TOKEN),
        (frozenset(), [10, 11, 99, 20, 21], FinishReason.OUTPUT_LIMIT),
    ):
        runtime = runtime_of(window=8)
        request = SequenceRequest((3, 1, 4), SAMPLED, 5, stop_ids, forcer=scripted(script))
        sequence = runtime.submit(request)
        seen: list[int] = []
        while runtime.has_work:
            if sequence.decodes:
                sequence.drafts = script[1:]
            for progress in runtime.step():
                seen += progress.tokens
        assert (seen, sequence.tokens[3:], sequence.finish) == (ids, ids, reason)
        runtime.check()


def test_a_long_prompt_does_not_stall_the_others(runtime_of: MakeRuntime) -> None:
    """Every step gives each decoding sequence a token, whatever is being prefilled beside it."""
    runtime = runtime_of()
    runtime.submit(SequenceRequest((1, 2, 3), GREEDY, 30))
    runtime.step()
    runtime.submit(SequenceRequest(tuple(range(480)), GREEDY, 2))
    for _ in range(8):
        assert any(progress.tokens for progress in runtime.step())


def test_j1_j2_cancelling_in_every_state_leaves_nothing(runtime_of: MakeRuntime) -> None:
    """J1, J2: waiting, prefilling, decoding; pages and slots are free at once."""
    runtime, draw = runtime_of(state_slots=3, pages=20, max_pending=1000), random.Random(7)
    live: list[Sequence] = []
    for index in range(300):
        live.append(runtime.submit(request_of(index, draw)))
        for _ in range(draw.randint(0, 3)):
            runtime.step()
        for sequence in draw.sample(live, draw.randint(0, len(live))):
            runtime.cancel(sequence)
            runtime.cancel(sequence)
        live = [sequence for sequence in live if sequence.status is not Status.FINISHED]
        runtime.check()
    for sequence in live:
        runtime.cancel(sequence)
    assert not runtime.has_work
    assert runtime.pages.free_count == runtime.pages.capacity
    assert runtime.slots.free_count == 3
