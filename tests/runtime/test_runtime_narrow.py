"""Narrow KV and states: the same ids in every company and cut, and how far the logits move."""

import random
from dataclasses import replace

import pytest
import torch
from safety_scene import Scene, request, words

from ninfer.request import SamplingParams
from ninfer.runtime import Runtime, SequenceRequest

NARROW = {
    "int8": {"kv_format": "int8"},
    "fp8": {"kv_format": "fp8"},
    "int4": {"kv_format": "int4"},
    "state": {"state_dtype": torch.bfloat16},
    "both": {"kv_format": "fp8", "state_dtype": torch.bfloat16},
}
SAMPLED = SamplingParams(temperature=1.0, top_k=20, seed=3)


@pytest.fixture(scope="module", params=["mtp", "dflash2"])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


@pytest.fixture(scope="module")
def plain() -> Scene:
    return Scene()


def requests() -> list[SequenceRequest]:
    draw = random.Random(2)
    lengths = (3, 64, 190, 260)
    head = words(draw, 130)
    return [
        request(
            head + words(draw, length - 130) if length > 130 else words(draw, length),
            sampling=replace(SAMPLED, seed=length) if index % 2 else SamplingParams(),
            max_tokens=16,
        )
        for index, length in enumerate(lengths)
    ]


def together(runtime: Runtime, wanted: list[SequenceRequest]) -> list[list[int]]:
    sequences = [runtime.submit(item) for item in wanted]
    while runtime.has_work:
        for progress in runtime.step():
            assert progress.error is None
    return [s.tokens[s.prompt_length :] for s in sequences]


@pytest.mark.parametrize("narrow", ["int8", "fp8", "int4", "both"])
def test_company_cuts_drafts_and_prefixes_change_nothing(scene: Scene, narrow: str) -> None:
    """Rounding happens at places of the sequence, not of the pass, so nothing else can move it."""
    sizes, wanted = NARROW[narrow], requests()
    free = {**sizes, "window": 1, "state_slots": 1, "pages": 20}
    alone = [
        together(scene.runtime(prefix_bytes=0, prefill_chunk=512, **free), [item])[0]
        for item in wanted
    ]
    assert len({tuple(tokens) for tokens in alone}) == len(alone)
    crowded = {"state_slots": 6, "max_pending": 10, **sizes}
    for changes in (
        {"pages": 40, "prefill_chunk": 128},
        {"pages": 40, "prefill_chunk": 64, "window": 1},
        {"pages": 9, "prefill_chunk": 128},  # preemption
    ):
        runtime = scene.runtime(**crowded | changes)
        assert together(runtime, wanted) == alone, changes
        assert together(runtime, wanted) == alone, ("warm", changes)
        assert runtime.prefixes is not None
    assert runtime.speculation is not None and runtime.speculation.counters.drafted > 5


def logits(scene: Scene, prompt: list[int], count: int, **sizes: object) -> torch.Tensor:
    """Logits [count, vocabulary] of the tokens that the exact model generates behind a prompt."""
    exact = scene.runtime(prefix_bytes=0)
    tokens = list(exact.generate(prompt, SAMPLED, count))
    runtime = scene.runtime(prefix_bytes=0, **sizes)
    rows: list[torch.Tensor] = []
    original = runtime._runner.run

    def watched(batch, taps=()):
        passed = original(batch, taps)
        rows.append(passed.logits.clone())
        return passed

    runtime._runner.run = watched  # observed, not changed
    sequence = runtime.submit(request(prompt, max_tokens=count + 1))
    for index, token in enumerate(tokens):
        while sequence.generated == index:
            runtime.step()
        # Follow the exact model, whatever this one would draw.
        sequence.tokens[-1] = token
    runtime.cancel(sequence)
    return torch.cat(rows)


def movement(scene: Scene, **sizes: object) -> float:
    """Root mean square of the change of logits over that of the logits themselves."""
    changed = size = 0.0
    for seed in range(2):
        prompt = words(random.Random(seed), 200)
        exact = logits(scene, prompt, 40)
        narrow = logits(scene, prompt, 40, **sizes)
        assert exact.shape == narrow.shape and exact.shape[0] == 40
        changed += float((narrow - exact).square().sum())
        size += float((exact - exact.mean(-1, keepdim=True)).square().sum())
    return (changed / size) ** 0.5


# Measured, with room of a half; the numbers stand in the decision records.
BOUNDS = {"int8": 0.0004, "fp8": 0.0016, "int4": 0.0072, "state": 0.004}


@pytest.mark.parametrize("narrow", BOUNDS)
def test_how_far_the_logits_move(plain: Scene, narrow: str) -> None:
    moved = movement(plain, **NARROW[narrow])
    assert 0 < moved < BOUNDS[narrow]


def test_nothing_moves_by_itself(plain: Scene) -> None:
    assert movement(plain) == 0
