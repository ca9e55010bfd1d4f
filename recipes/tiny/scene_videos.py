"""Questions about short videos in which one thing changes half way."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from recipes.tiny.scene_layout import (
    SIDES,
    Look,
    arrange,
    distinct_looks,
    fits,
    jittered,
    look_of,
)
from recipes.tiny.scene_shapes import COLOURS, Scene, Shape
from recipes.tiny.scene_words import Case, ask, exact, named, one

MOVES: Final = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
_MOVE_PIXELS: Final = (26.0, 60.0)
_SHARE_OF_SPECIFIC: Final = 0.3

_WHAT: Final = (
    "What changed?",
    "What changes in the video?",
    "What happened?",
    "What happens in the clip?",
    "What is different at the end?",
    "Say what changed in this video.",
)
_WAY: Final = (
    "Which way did the {thing} move?",
    "In which direction does the {thing} move?",
    "Where did the {thing} go: left, right, up or down?",
)
_TURNED: Final = (
    "What colour did the {thing} turn?",
    "Which colour does the {thing} become?",
    "What color is the {thing} at the end?",
)
_APPEARED: Final = ("What appeared?", "What is new at the end?", "Which shape appears?")
_GONE: Final = ("What disappeared?", "What is gone at the end?", "Which shape disappears?")

# What a change gives: both scenes, the sentence, and a question for that change with its answer.
_Change = tuple[Scene, Scene, str, str, str]


def change(rng: Random) -> Case:
    """A shape moved, turned another colour, appeared or disappeared; or nothing changed."""
    form = rng.choices((_move, _turn, _appear, _disappear, _nothing), (40, 18, 18, 18, 6))[0]
    before, after, sentence, question, answer = form(rng)
    if question and rng.random() < _SHARE_OF_SPECIFIC:
        return exact([(before, after)], question, answer)
    return exact([(before, after)], ask(rng, _WHAT), sentence)


def _first(rng: Random, fewest: int = 1) -> tuple[Scene, list[Look]]:
    looks = distinct_looks(rng, rng.choice([n for n in (1, 2, 2, 3) if n >= fewest]))
    # Without noise, which would be most of the file.
    return arrange(rng, looks, sides=SIDES[:1], noise=False), looks


def _with(scene: Scene, shapes: list[Shape]) -> Scene:
    return replace(scene, shapes=tuple(shapes))


def _move(rng: Random) -> _Change:
    while True:
        scene, looks = _first(rng)
        way = rng.choice(tuple(MOVES))
        moved, *others = scene.shapes
        far, (dx, dy) = rng.uniform(*_MOVE_PIXELS), MOVES[way]
        there = replace(moved, x=moved.x + dx * far, y=moved.y + dy * far)
        if fits(there, others, scene.width, scene.height):
            break
    thing = named(looks[0])
    sentence = f"the {thing} moved {way}"
    return scene, _with(scene, [there, *others]), sentence, ask(rng, _WAY, thing=thing), way


def _turn(rng: Random) -> _Change:
    scene, looks = _first(rng)
    old, *others = scene.shapes
    taken = {look.colour for look in looks if look.kind == old.kind}
    new = rng.choice([colour for colour in COLOURS if colour not in taken])
    turned = replace(old, colour=new, rgb=jittered(rng, new))
    thing = named(looks[0])
    question = ask(rng, _TURNED, thing=thing)
    return scene, _with(scene, [turned, *others]), f"the {thing} turned {new}", question, new


def _appear(rng: Random) -> _Change:
    scene, _ = _first(rng, fewest=2)
    new, *others = scene.shapes
    what = one(look_of(new))
    return _with(scene, others), scene, f"{what} appeared", ask(rng, _APPEARED), what


def _disappear(rng: Random) -> _Change:
    scene, looks = _first(rng)
    _, *others = scene.shapes
    sentence = f"the {named(looks[0])} disappeared"
    return scene, _with(scene, others), sentence, ask(rng, _GONE), one(looks[0])


def _nothing(rng: Random) -> _Change:
    scene, _ = _first(rng)
    return scene, scene, "nothing changed", "", ""


VIDEO_CASES: Final[dict[str, Callable[[Random], Case]]] = {"video_change": change}
