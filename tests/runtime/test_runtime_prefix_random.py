"""Random histories of the prefix cache against a search through all of its entries."""

import random

import pytest
from prefix_scene import Scene, words

from ninfer.errors import CapacityError


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("roomy", [True, False])
def test_random_histories_agree_with_a_search_through_all_entries(seed: int, roomy: bool) -> None:
    """Tight: requests overlap, pages and states run out, and entries are dropped all the time."""
    scene = Scene(page_count=2000 if roomy else 40, states=500 if roomy else 6)
    rng = random.Random(seed)
    prefixes: dict[bytes, list[int]] = {}
    prompts = [words(rng.randrange(1, 200), 1)]
    for _ in range(150):
        prompt = _related(rng, prompts)
        if not roomy:
            _make_turbulence(scene, rng)
        best = _longest_entry(scene, prefixes, prompt)
        key = scene.key(prompt)
        prefixes.update({key.chain(n): prompt[: n * 64] for n in range(1, key.pages + 1)})
        try:
            running = scene.start(prompt)
        except CapacityError:
            continue
        assert running.match.length == best
        assert (running.match.reason is None) == (best == key.reusable * 64 and best > 0)
        if roomy:
            scene.stop(running)
        scene.check()
    assert scene.cache.stats.hits > 20
    assert (scene.cache.stats.dropped_pages == 0) == roomy
    for running in list(scene.running):
        scene.stop(running)
    scene.cache.clear()
    assert scene.pool.free_count == scene.pool.capacity


def _related(rng: random.Random, prompts: list[list[int]]) -> list[int]:
    """A continuation or a branch of one of the last prompts; the alphabet is small."""
    base = rng.choice(prompts[-5:])
    cut = len(base) if rng.random() < 0.5 else rng.randrange(len(base) + 1)
    prompt = (base[:cut] + [rng.randrange(3) for _ in range(rng.randrange(1, 200))])[:700]
    prompts.append(prompt)
    return prompt


def _longest_entry(scene: Scene, prefixes: dict[bytes, list[int]], prompt: list[int]) -> int:
    entries = [prefixes[node.chain] for node in scene.cache._tree.borders]
    fitting = (len(e) for e in entries if len(e) < len(prompt) and e == prompt[: len(e)])
    return max(fitting, default=0)


def _make_turbulence(scene: Scene, rng: random.Random) -> None:
    while scene.running and (len(scene.running) > 3 or rng.random() < 0.3):
        scene.stop(rng.choice(scene.running))
    if rng.random() < 0.2:
        scene.cache.evict(rng.randrange(10))
