"""One request's trouble stays its own: NaN logits, constraints, draws, media, device memory."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from safety_scene import Scene, request, with_pictures, words

from ninfer import ops
from ninfer.errors import CapacityError, GenerationError, NInferError, RequestFailedError
from ninfer.request import SamplingParams
from ninfer.runtime import Runtime, Sequence, SequenceRequest

POISON = 17
SAMPLED = SamplingParams(temperature=1.0, top_k=20, seed=3)
PENALISED = replace(SAMPLED, presence_penalty=1.0)


@pytest.fixture(scope="module", params=[None, "mtp", "dflash2"], ids=str)
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


@pytest.fixture
def poisoned(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The model with an embedding row of NaN."""
    embedding = scene.model.text.embedding.clone()
    embedding[POISON] = float("nan")
    monkeypatch.setattr(scene.model, "text", replace(scene.model.text, embedding=embedding))
    return scene


def prompts(count: int, seed: int = 1) -> list[list[int]]:
    draw = random.Random(seed)
    found = [words(draw, draw.choice((20, 64, 130, 200))) for _ in range(count)]
    return [[token if token != POISON else 18 for token in prompt] for prompt in found]


def company() -> list[SequenceRequest]:
    settings = (SamplingParams(), SAMPLED, PENALISED)
    return [
        request(prompt, sampling=params, max_tokens=10)
        for prompt, params in zip(prompts(3), settings, strict=True)
    ]


def alone(runtime: Runtime, wanted: SequenceRequest) -> list[int]:
    return list(runtime.generate(wanted.prompt, wanted.sampling, wanted.max_tokens))


def run_with(
    runtime: Runtime, bad: list[SequenceRequest]
) -> tuple[list[list[int]], list[NInferError | None]]:
    """The company's tokens and the errors of the bad ones, which come in between."""
    good = company()
    mixed = [item for pair in zip(good, bad, strict=False) for item in pair] + good[len(bad) :]
    sequences = [runtime.submit(item) for item in mixed]
    errors: dict[Sequence, NInferError] = {}
    while runtime.has_work:
        for progress in runtime.step():
            if progress.error:
                assert progress.sequence not in errors
                errors[progress.sequence] = progress.error
        runtime.check()
    by_request = dict(zip(map(id, mixed), sequences, strict=True))
    tokens = [by_request[id(item)].tokens[len(item.prompt) :] for item in good]
    return tokens, [errors.get(by_request[id(item)]) for item in bad]


def test_a_prompt_of_nan_fails_alone(poisoned: Scene) -> None:
    """Whatever it wrote into pages, states and drafters' caches reaches nobody, then or later."""
    expected = [alone(poisoned.runtime(), item) for item in company()]
    runtime = poisoned.runtime(state_slots=6, pages=30)
    bad = [request([*prompt, POISON, *prompt[:3]]) for prompt in prompts(2, 5)]
    for _ in range(2):  # the second time on the pages and slots of the first
        tokens, errors = run_with(runtime, bad)
        assert tokens == expected
        assert all(isinstance(error, GenerationError) for error in errors), errors
        assert "non-finite logits" in str(errors[0])


def test_a_prefix_of_nan_is_not_kept(poisoned: Scene) -> None:
    runtime = poisoned.runtime()
    head = prompts(1, 7)[0][:20] + [POISON] + [30] * 200
    with pytest.raises(GenerationError):
        alone(runtime, request(head))
    assert runtime.prefixes is not None
    assert runtime.prefixes.cache.page_count == 0


def test_a_draft_of_nan_is_only_a_wrong_draft(poisoned: Scene) -> None:
    """A drafter that proposes the poisoned token must not fail whom it drafts for."""
    wanted = request(prompts(1, 9)[0], max_tokens=24)
    expected = alone(poisoned.runtime(), wanted)
    assert POISON not in expected
    runtime = poisoned.runtime(window=4)
    sequence = runtime.submit(wanted)
    tried = 0
    while runtime.has_work:
        if sequence.decodes and sequence.remaining > 1:
            sequence.drafts = [*expected[sequence.generated :][: tried % 3], POISON]
            tried += 1
        assert all(progress.error is None for progress in runtime.step())
    assert sequence.tokens[sequence.prompt_length :] == expected
    assert tried > 5


def test_logits_that_go_bad_in_the_middle_fail_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a passing fault of the device would; drafts and prefixes of the others stay right."""
    expected = [alone(scene.runtime(), item) for item in company()]
    runtime = scene.runtime(state_slots=4, pages=30)
    victim = request(prompts(1, 11)[0], max_tokens=30)
    original, passes = runtime._runner.run, iter(range(1000))

    def faulty(batch, taps=()):
        passed = original(batch, taps)
        if next(passes) == 9:
            # The victim came second, so its rows of this pass are found by its slot.
            place = batch.rows.state_slots.tolist().index(1)
            start, stop = batch.rows.offsets[place : place + 2].tolist()
            rows = (batch.logit_rows >= start) & (batch.logit_rows < stop)
            assert bool(rows.any())
            spoilt = torch.where(rows.unsqueeze(1), float("nan"), passed.logits)
            return replace(passed, logits=spoilt)
        return passed

    monkeypatch.setattr(runtime._runner, "run", faulty)
    tokens, (error,) = run_with(runtime, [victim])
    assert isinstance(error, GenerationError)
    assert tokens == expected


class Broken:
    """A constraint that allows everything until it raises."""

    is_finished = may_stop = False

    def __init__(self, calls: int, where: str, ids: int) -> None:
        self._left = {where: calls}
        self._words = b"\xff" * (4 * -(-ids // 32))

    def _count(self, where: str) -> None:
        left = self._left.get(where, 1000)
        if left == 0:
            raise ZeroDivisionError(f"broken in {where}")
        self._left[where] = left - 1

    def allowed(self) -> bytes:
        self._count("allowed")
        return self._words

    def advance(self, token_id: int) -> bool:
        self._count("advance")
        return True


@pytest.mark.parametrize("where", ["allowed", "advance"])
@pytest.mark.parametrize("calls", [0, 4])
def test_j7_a_constraint_that_raises_fails_alone(scene: Scene, where: str, calls: int) -> None:
    """J7: whatever it raises, and in which of its calls."""
    expected = [alone(scene.runtime(), item) for item in company()]
    ids = scene.model.config.text.addressable
    bad = replace(request(prompts(1, 3)[0]), constraint=Broken(calls, where, ids))
    runtime = scene.runtime(state_slots=4, pages=30)
    tokens, (error,) = run_with(runtime, [bad])
    assert tokens == expected
    assert isinstance(error, RequestFailedError)
    assert f"ZeroDivisionError: broken in {where}" in str(error)


def test_a_draw_that_raises_fails_alone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """J7: the sampler is called for all together; the one to blame is found, the rest go on."""
    expected = [alone(scene.runtime(), item) for item in company()]
    original = ops.sample

    def touchy(logits: torch.Tensor, **settings: Any) -> torch.Tensor:
        if 0.77 in settings["temperature"].tolist():
            raise ValueError("sample: temperature of 0.77 is not liked")
        return original(logits, **settings)

    monkeypatch.setattr(ops, "sample", touchy)
    bad = request(prompts(1, 3)[0], sampling=replace(SAMPLED, temperature=0.77))
    tokens, (error,) = run_with(scene.runtime(state_slots=4, pages=30), [bad])
    assert tokens == expected
    assert isinstance(error, RequestFailedError) and "0.77 is not liked" in str(error)


def test_media_that_cannot_be_encoded_fail_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [alone(scene.runtime(), item) for item in company()]
    runtime = scene.runtime(state_slots=5, pages=30)
    first, second = (with_pictures(scene, [9, 8, 7], [seed, seed + 1]) for seed in (1, 5))
    broken = replace(second.media[1], patches=second.media[1].patches[:7])
    bad = [first, replace(second, media=(second.media[0], broken))]
    tokens, errors = run_with(runtime, bad)
    assert tokens == expected
    assert errors[0] is None and isinstance(errors[1], RequestFailedError)
    assert not runtime.media_held


def out_of_memory(original: Callable[..., object], rows: int, times: int) -> Callable[..., object]:
    """A device that has no memory for passes of `rows` and more, so many times."""
    left = [times]

    def run(batch, taps=()):
        passed = original(batch, taps)
        if batch.tokens.numel() >= rows and left[0]:
            # After the pass has written what it could: caches are half way on.
            left[0] -= 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return passed

    return run


def test_a_pass_without_memory_fails_its_largest_part(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others replay what the broken pass spoilt, to the same ids."""
    expected = [alone(scene.runtime(), item) for item in company()]
    runtime = scene.runtime(state_slots=4, pages=40, prefill_chunk=256)
    monkeypatch.setattr(runtime._runner, "run", out_of_memory(runtime._runner.run, 240, 100))
    bad = request([5, *prompts(1, 3)[0]] * 4, max_tokens=4)
    assert len(bad.prompt) >= 256
    tokens, (error,) = run_with(runtime, [bad])
    assert tokens == expected
    assert isinstance(error, CapacityError) and "--prefill-chunk" in str(error)


def test_passes_without_memory_at_random_end_only_what_they_must(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [alone(scene.runtime(), item) for item in company()]
    runtime, draw = scene.runtime(state_slots=4, pages=30), random.Random(4)
    original = runtime._runner.run

    def run(batch, taps=()):
        passed = original(batch, taps)
        if draw.random() < 0.08:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return passed

    monkeypatch.setattr(runtime._runner, "run", run)
    ended = whole = 0
    for _ in range(3):
        sequences = [runtime.submit(item) for item in company()]
        while runtime.has_work:
            runtime.step()
            runtime.check()
        for sequence, answer in zip(sequences, expected, strict=True):
            made = sequence.tokens[sequence.prompt_length :]
            assert made == answer[: len(made)]
            ended, whole = ended + (made != answer), whole + (made == answer)
    assert ended and whole
