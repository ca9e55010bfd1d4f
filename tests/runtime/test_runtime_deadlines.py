"""Deadlines and the pending timeout: honoured in every state, and free within one step."""

import random
from dataclasses import replace

import pytest
from safety_scene import Scene, request, state_of, with_pictures, words

from ninfer.errors import QueueTimeoutError
from ninfer.request import FinishReason
from ninfer.runtime import Progress, Runtime, Sequence, Status


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene("mtp")


def free(runtime: Runtime) -> tuple[int, int]:
    assert runtime.prefixes is not None
    return runtime.pages.free_count + runtime.prefixes.cache.page_count, runtime.slots.free_count


def ending(progress: list[Progress], sequence: Sequence) -> Progress:
    (found,) = [p for p in progress if p.sequence is sequence]
    return found


def until(runtime: Runtime, condition) -> None:
    for _ in range(50):
        if condition():
            return
        runtime.step()
    raise AssertionError("the state did not come up")


@pytest.mark.parametrize("state", ["waiting", "encoding", "prefilling", "decoding", "preempted"])
def test_a_deadline_ends_a_request_in_every_state(scene: Scene, state: str) -> None:
    runtime, draw = scene.runtime(state_slots=2), random.Random(3)
    start = free(runtime)
    others = [runtime.submit(request(words(draw, 20), max_tokens=60)) for _ in range(2)]
    if state == "waiting":
        hurried = runtime.submit(request(words(draw, 20), deadline=5.0))
    elif state == "encoding":
        runtime.cancel(others.pop())
        hurried = runtime.submit(with_pictures(scene, words(draw, 20), [1, 2, 3], deadline=5.0))
    else:
        runtime.cancel(others.pop())
        hurried = runtime.submit(request(words(draw, 400), max_tokens=40, deadline=5.0))
    if state == "preempted":
        until(runtime, lambda: hurried.generated > 2)
        runtime._scheduler.preempt(hurried)
    else:
        until(runtime, lambda: state_of(hurried) == state)
    scene.clock.now += 4.9
    if state == "decoding":
        assert all(p.finish is None for p in runtime.step())
    made = hurried.generated
    scene.clock.now += 0.2
    end = ending(runtime.step(), hurried)
    assert (end.tokens, end.finish, end.error) == ((), FinishReason.DEADLINE, None)
    assert (hurried.status, hurried.generated) == (Status.FINISHED, made)
    assert hurried.pages == [] and not runtime.media_held
    runtime.check()
    for other in others:
        runtime.cancel(other)
    assert free(runtime) == start and not runtime.has_work


def test_the_pending_timeout_is_for_those_without_a_place(scene: Scene) -> None:
    runtime, draw = scene.runtime(state_slots=1, pending_timeout=2.0), random.Random(4)
    running = runtime.submit(request(words(draw, 20), max_tokens=60))
    waits = runtime.submit(request(words(draw, 20)))
    runtime.step()
    scene.clock.now += 1.9
    runtime.step()
    assert waits.status is Status.WAITING
    scene.clock.now += 0.1
    end = ending(runtime.step(), waits)
    assert isinstance(end.error, QueueTimeoutError)
    assert "within 2000 ms" in str(end.error) and "--pending-timeout-ms" in str(end.error)
    # The one that has its place keeps it however long it takes, also when it gives way for a time.
    scene.clock.now += 100
    runtime._scheduler.preempt(running)
    runtime.step()
    assert running.status is Status.RUNNING
    runtime.check()


def test_the_time_of_arrival_may_lie_before_the_submission(scene: Scene) -> None:
    """Preparation counts: who spent the time on downloads has less of it left to wait."""
    runtime, draw = scene.runtime(pending_timeout=2.0, state_slots=1), random.Random(5)
    runtime.submit(request(words(draw, 20), max_tokens=60))
    late = runtime.submit(request(words(draw, 20), arrived=scene.clock.now - 2.0))
    limited = runtime.submit(request(words(draw, 20), arrived=scene.clock.now - 1.0, deadline=1.0))
    ends = runtime.step()
    assert isinstance(ending(ends, late).error, QueueTimeoutError)
    assert ending(ends, limited).finish is FinishReason.DEADLINE


def test_a_deadline_keeps_what_was_made_and_changes_no_other(scene: Scene) -> None:
    draw = random.Random(6)
    prompts = [words(draw, length) for length in (40, 130, 70)]
    alone = [list(scene.runtime().generate(p, request(p).sampling, 40)) for p in prompts]
    runtime = scene.runtime()
    sequences = [runtime.submit(request(p, max_tokens=40)) for p in prompts[:2]]
    hurried = runtime.submit(replace(request(prompts[2], max_tokens=40), deadline=3.0))
    while runtime.has_work:
        runtime.step()
        scene.clock.now += 0.25
        runtime.check()
    made = hurried.tokens[hurried.prompt_length :]
    assert 0 < len(made) < 40 and made == alone[2][: len(made)]
    for sequence, tokens in zip(sequences, alone, strict=False):
        assert sequence.tokens[sequence.prompt_length :] == tokens
