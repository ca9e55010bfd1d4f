"""Public reports on caches and memory of other engines, tried on this one; named by id."""

import logging
import random

import pytest
from safety_scene import Scene, request, words

from ninfer.runtime import Runtime
from ninfer.runtime.prefix_reuse import PrefixOptions


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene("mtp")


def test_d7_a_cache_that_can_hold_nothing_says_so(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """The report: the flag was taken, nothing ever hit, and nobody was told."""
    model, prompt = scene.model, words(random.Random(1), 200)
    for budget, hits in ((10, 0), (1 << 20, 1)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "ninfer"):
            options = PrefixOptions(budget, b"d7")
            runtime = Runtime(model.text, model.config, model.runtime, prefix=options)
        assert ("prefix reuse is off" in caplog.text) == (hits == 0)
        answers = [list(runtime.generate(prompt, request([1]).sampling, 6)) for _ in range(2)]
        assert answers[0] == answers[1]
        assert runtime.prefixes is not None
        assert runtime.prefixes.cache.stats.hits == hits


@pytest.mark.parametrize("places", range(1, 9))
def test_d11_as_many_sequences_as_places_at_exact_capacity(scene: Scene, places: int) -> None:
    """The report: a slot too few, and four sequences crashed. One page less only takes longer."""
    draw = random.Random(places)
    prompts = [words(draw, 60) for _ in range(places)]
    answers = []
    for missing in (0, 1):
        runtime = scene.runtime(
            prefix_bytes=0,
            max_context=72,
            state_slots=places,
            pages=max(2 * places - missing, 2),
            max_pending=places,
        )
        sequences = [runtime.submit(request(p, max_tokens=13)) for p in prompts]
        while runtime.has_work:
            assert all(progress.error is None for progress in runtime.step())
            runtime.check()
        assert bool(sum(s.preemptions for s in sequences)) == (missing == 1 and places > 1)
        answers.append([s.tokens for s in sequences])
    assert answers[0] == answers[1]
