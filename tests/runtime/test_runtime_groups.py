"""Several answers to one prompt beside time limits, pictures, and what fails."""

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
from safety_scene import Scene, request, with_pictures, words

import ninfer.runtime.loop as loop_module
from ninfer.errors import QueueTimeoutError, RequestFailedError
from ninfer.request import FinishReason, SamplingParams, TokenForcer
from ninfer.runtime import Progress, Runtime, Sequence, SequenceRequest, Status

SAMPLED = SamplingParams(temperature=1.0, top_k=20)


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene("mtp")


def seeded(wanted: SequenceRequest, count: int) -> list[SequenceRequest]:
    return [replace(wanted, sampling=replace(SAMPLED, seed=seed)) for seed in range(count)]


def prompt(length: int = 150) -> list[int]:
    return words(random.Random(length), length)


def run(runtime: Runtime) -> list[Progress]:
    """Everything that is reported until nothing is left to do."""
    found: list[Progress] = []
    while runtime.has_work:
        found += runtime.step()
        runtime.check()
    return found


def answers(sequences: Iterable[Sequence]) -> list[list[int]]:
    return [sequence.tokens[sequence.prompt_length :] for sequence in sequences]


def alone(scene: Scene, requests: Iterable[SequenceRequest]) -> list[list[int]]:
    runtime, found = scene.runtime(prefix_bytes=0), []
    for wanted in requests:
        sequence = runtime.submit(wanted)
        run(runtime)
        found += answers([sequence])
    return found


def test_a_group_waits_for_a_place_together(scene: Scene) -> None:
    runtime = scene.runtime(state_slots=1, pending_timeout=2.0)
    runtime.submit(request(prompt(20), max_tokens=60))
    group = runtime.submit_many(seeded(request(prompt()), 3))
    runtime.step()
    scene.clock.now += 2.0
    ends = {p.sequence: p.error for p in runtime.step() if p.error}
    assert ends.keys() == set(group)
    assert all(isinstance(error, QueueTimeoutError) for error in ends.values())


@pytest.mark.parametrize("steps", [1, 3])
def test_who_inherits_a_prompt_has_its_place(scene: Scene, steps: int) -> None:
    """While the first one computes it, and behind that until a state slot is free."""
    runtime = scene.runtime(state_slots=1, pending_timeout=2.0)
    requests = seeded(request(prompt()), 3)
    group = runtime.submit_many(requests)
    for _ in range(steps):
        runtime.step()
    assert [sequence.status for sequence in group[1:]] == [Status.WAITING] * 2
    assert [bool(sequence.leader) for sequence in group[1:]] == [steps == 1] * 2
    scene.clock.now += 100
    assert all(progress.error is None for progress in run(runtime))
    assert answers(group) == alone(scene, requests)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_deadline_ends_the_whole_group(scene: Scene, steps: int) -> None:
    runtime = scene.runtime(state_slots=2, prefix_bytes=0)
    group = runtime.submit_many(seeded(request(prompt(), max_tokens=60, deadline=5.0), 3))
    for _ in range(steps):
        runtime.step()
    scene.clock.now += 5.0
    ends = {p.sequence: p.finish for p in runtime.step()}
    assert ends == dict.fromkeys(group, FinishReason.DEADLINE)
    assert not runtime.has_work and runtime.pages.free_count == runtime.pages.capacity
    runtime.check()


@pytest.mark.parametrize("dropped", [False, True])
def test_a_picture_is_encoded_once_and_again_only_for_a_lost_fork(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    requests = seeded(with_pictures(scene, prompt(40), [1, 2]), 3)
    expected = alone(scene, requests)
    runtime, encoded = scene.runtime(state_slots=1, prefix_bytes=0), []
    original = runtime._media._encode
    monkeypatch.setattr(runtime._media, "_encode", lambda m: (encoded.append(m), original(m))[1])
    group = runtime.submit_many(requests)
    while runtime.has_work:
        runtime.step()
        if dropped:
            runtime.forks.drop()
        runtime.check()
    assert answers(group) == expected
    assert len(encoded) == (6 if dropped else 2)
    assert not runtime.media_held


def test_passes_without_memory_at_random_end_only_what_they_must(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = seeded(request(prompt(), max_tokens=20), 4)
    expected = alone(scene, requests)
    runtime, draw = scene.runtime(), random.Random(2)
    original = runtime._runner.run

    def faulty(batch, taps=()):
        passed = original(batch, taps)
        if draw.random() < 0.1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return passed

    monkeypatch.setattr(runtime._runner, "run", faulty)
    whole = ended = 0
    for _ in range(6):
        group = runtime.submit_many(requests)
        run(runtime)
        for made, answer in zip(answers(group), expected, strict=True):
            assert made == answer[: len(made)]
            whole, ended = whole + (made == answer), ended + (made != answer)
    assert whole and ended


class Broken:
    """A forcer that leaves every place free until it raises."""

    is_done = False

    def __init__(self, calls: int) -> None:
        self._left = calls

    def forced(self) -> int | None:
        if self._left == 0:
            raise ZeroDivisionError("broken forcer")
        self._left -= 1
        return None

    def advance(self, token_id: int) -> None:
        pass


@pytest.mark.parametrize("calls", [0, 5])
@pytest.mark.parametrize("place", [0, 2])
def test_a_forcer_that_raises_fails_alone(scene: Scene, calls: int, place: int) -> None:
    """The others of its group go on, also when it was to compute the prompt for them."""
    requests = seeded(request(prompt()), 4)
    expected = alone(scene, requests)
    forcer: TokenForcer = Broken(calls)
    requests[place] = replace(requests[place], forcer=forcer)
    runtime = scene.runtime()
    group = runtime.submit_many(requests)
    (error,) = (p.error for p in run(runtime) if p.error)
    assert isinstance(error, RequestFailedError) and "broken forcer" in str(error)
    found = answers(group)
    cut = found.pop(place)
    assert cut == expected.pop(place)[: len(cut)] and len(cut) <= calls
    assert found == expected


def test_log_probabilities_of_a_prompt_that_fail_end_their_own_sequence(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(piece: object, *rest: object) -> None:
        raise ZeroDivisionError("broken score")

    others = seeded(request(prompt(70)), 2)
    expected = alone(scene, others)
    monkeypatch.setattr(loop_module, "score_prompt", failing)
    runtime = scene.runtime()
    scored = runtime.submit(request(prompt(), prompt_logprobs=1))
    group = runtime.submit_many(others)
    ends = {p.sequence: p.error for p in run(runtime) if p.error}
    assert ends.keys() == {scored} and isinstance(ends[scored], RequestFailedError)
    assert answers(group) == expected
