"""Cancellation in every state and failed admissions, many times over: nothing stays behind."""

import gc
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from safety_scene import KINDS, Scene, request, state_of, with_pictures, words

from ninfer.errors import CapacityError, ContextError, NInferError, PromptError, UsageError
from ninfer.request import LogitBias, MediaRun, SamplingParams
from ninfer.runtime import Runtime, Sequence, SequenceRequest, Status

STATES = {"waiting", "encoding", "prefilling", "decoding", "preempted"}


@pytest.fixture(scope="module", params=KINDS, ids=str)
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


def any_request(scene: Scene, draw: random.Random, heads: list[list[int]]) -> SequenceRequest:
    """Mostly short; a third begins like another one, a third has pictures, some must preempt."""
    fields: dict[str, object] = {
        "max_tokens": draw.choice((1, 3, 12, 40, 150)),
        "sampling": draw.choice(
            (
                SamplingParams(),
                SamplingParams(temperature=1.0, top_k=20, seed=draw.randrange(9)),
                SamplingParams(temperature=1.0, presence_penalty=1.0, seed=draw.randrange(9)),
            )
        ),
    }
    tail = words(draw, draw.choice((1, 5, 63, 64, 65, 128, 200)))
    if draw.random() < 0.3:
        seeds = [draw.randrange(5) for _ in range(draw.randint(1, 3))]
        return with_pictures(scene, tail, seeds, **fields)
    head = draw.choice(heads) if draw.random() < 0.4 else []
    return request(head + tail, **fields)


def assert_clean(runtime: Runtime) -> None:
    """Nothing is held but by the prefix cache, and nothing by that once it is cleared."""
    runtime.check()
    assert not runtime.has_work and not runtime.media_held
    assert runtime.prefixes is not None
    cache = runtime.prefixes.cache
    assert runtime.pages.free_count + cache.page_count == runtime.pages.capacity
    cache.clear()
    assert runtime.pages.free_count == runtime.pages.capacity
    assert runtime.slots.free_count == runtime._runtime.state_slots


def storm(scene: Scene, count: int, seed: int) -> Counter[str]:
    """Submit `count` requests, a quarter of them for three answers, and cancel most; the states."""
    runtime = scene.runtime()
    seen = blow(scene, runtime, count, random.Random(seed))
    assert_clean(runtime)
    gc.collect()
    kept = [item for item in gc.get_objects() if type(item) is Sequence]
    assert not kept, "something keeps a sequence that has ended"
    return seen


def blow(scene: Scene, runtime: Runtime, count: int, draw: random.Random) -> Counter[str]:
    """The storm itself; its sequences are out of scope behind it."""
    heads = [words(draw, 130) for _ in range(3)]
    live: list[Sequence] = []
    seen: Counter[str] = Counter()
    for made in range(count):
        wanted = any_request(scene, draw, heads)
        seeds = range(draw.choice((1, 1, 1, 3)))
        try:
            live += runtime.submit_many(
                [replace(wanted, sampling=replace(wanted.sampling, seed=seed)) for seed in seeds]
            )
        except CapacityError:
            seen["refused"] += 1
        for _ in range(draw.choice((0, 0, 1, 2, 3))):
            for progress in runtime.step():
                assert progress.error is None
        if draw.random() < 0.2 and runtime._scheduler.running:
            # As when pages run out; with pressure alone it is too rare for so few requests.
            runtime._scheduler.preempt(runtime._scheduler.running[-1])
        live = [sequence for sequence in live if sequence.status is not Status.FINISHED]
        for sequence in live:
            # Those in states that pass quickly are cancelled more often.
            state = state_of(sequence)
            if draw.random() < {"preempted": 0.4, "encoding": 0.5}.get(state, 0.12):
                seen[state] += 1
                runtime.cancel(sequence)
                runtime.cancel(sequence)
        if made % 16 == 0:
            runtime.check()
    for sequence in live:
        runtime.cancel(sequence)
    return seen


def test_j1_j2_cancelling_in_every_state_leaves_nothing(scene: Scene) -> None:
    """J1, J2: pages, slots, media and drafters' memory are free at once, whatever it was doing."""
    seen: Counter[str] = Counter()
    for seed in range(2):
        seen += storm(scene, 30, seed)
    assert seen.keys() >= STATES, seen


@pytest.mark.soak
def test_j1_j2_cancelling_in_every_state_leaves_nothing_in_full(
    scene: Scene, record_property: Callable[[str, object], None]
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(50):
        seen += storm(scene, 200, 100 + seed)
    assert all(seen[state] >= 10 for state in STATES), seen
    record_property("count", 10_000)
    record_property("unit", "requests, cancelled at random in every state")


def failing(scene: Scene, draw: random.Random) -> tuple[SequenceRequest, type[NInferError]]:
    """A request that submission must refuse, and the error of its kind."""
    good = words(draw, 30)
    kind = draw.randrange(7)
    if kind == 0:
        return request(words(draw, 500), max_tokens=400), ContextError
    if kind == 1:
        return request(good, max_tokens=480), CapacityError
    if kind == 2:
        value = draw.choice((float("nan"), -1.0, float("inf")))
        return request(good, sampling=SamplingParams(temperature=value)), UsageError
    if kind == 6:
        limits = draw.choice(({"logit_bias": (LogitBias(10**6, 1.0),)}, {"repetition_penalty": 0}))
        return request(good, sampling=SamplingParams(**limits)), UsageError
    if kind == 3:
        return request([*good, draw.choice((-1, 10**6))]), PromptError
    bad = with_pictures(scene, good, [1])
    if kind == 4:
        return request(list(bad.prompt), runs=bad.runs), PromptError
    run = MediaRun(40, (1, 4, 4), 0, 0)
    return request(list(bad.prompt), media=bad.media, runs=(run, run)), PromptError


def refuse(scene: Scene, count: int) -> None:
    """Failed admissions beside running sequences: they take nothing and disturb nobody."""
    draw = random.Random(8)
    runtime = scene.runtime(pages=7, max_pending=1)
    company = [runtime.submit(request(words(draw, 30), max_tokens=12)) for _ in range(2)]
    runtime.step()
    expected = [list(scene.runtime().generate(s.tokens[:30], s.sampling, 12)) for s in company]
    before = (runtime.pages.free_count, runtime.slots.free_count)
    for _ in range(count):
        bad, kind = failing(scene, draw)
        with pytest.raises(kind):
            if kind is ContextError:
                runtime.output_capacity(len(bad.prompt) + bad.max_tokens)
            runtime.submit(bad)
        assert (runtime.pages.free_count, runtime.slots.free_count) == before
    # No place: the queue is full.
    waits = [runtime.submit(request(words(draw, 9))) for _ in range(2)]
    for _ in range(count // 5):
        with pytest.raises(CapacityError, match="requests are waiting already"):
            runtime.submit(request(words(draw, 9)))
    assert (runtime.pages.free_count, runtime.slots.free_count) == before
    for sequence in waits:
        runtime.cancel(sequence)
    while runtime.has_work:
        runtime.step()
    assert [s.tokens[30:] for s in company] == expected
    assert_clean(runtime)


def test_d10_failed_admissions_leave_the_free_counts_alone(scene: Scene) -> None:
    """D10: whatever the reason for the refusal, nothing that was taken before it stays taken."""
    refuse(scene, 20)


@pytest.mark.soak
def test_d10_failed_admissions_in_full(
    scene: Scene, record_property: Callable[[str, object], None]
) -> None:
    refuse(scene, 1000)
    record_property("count", 1200)
    record_property("unit", "failed admissions of eight kinds")
