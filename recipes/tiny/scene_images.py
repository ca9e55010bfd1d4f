"""Questions about pictures: how many, what colour, where, what is there, and which of two."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from recipes.tiny.scene_layout import (
    Look,
    arrange,
    distinct_looks,
    look_of,
    random_look,
    unlike_looks,
)
from recipes.tiny.scene_shapes import Spot
from recipes.tiny.scene_words import Case, ask, exact, groups, listed, named, one, plural

_HOW_MANY: Final = (
    "How many {things} are there?",
    "How many {things} do you see?",
    "How many {things} are in the image?",
    "How many {things} does the picture show?",
    "Count the {things}.",
    "What is the number of {things}?",
)
_COLOUR: Final = (
    "What colour is the {thing}?",
    "What color is the {thing}?",
    "Which colour does the {thing} have?",
    "Tell me the colour of the {thing}.",
    "The {thing} has what colour?",
)
_KIND: Final = (
    "Which shape is {colour}?",
    "What shape is the {colour} one?",
    "Name the {colour} shape.",
)
_DESCRIBE: Final = (
    "Describe the image.",
    "Describe the picture.",
    "What is in the image?",
    "What does the picture show?",
    "What do you see?",
    "Which shapes are there?",
    "List the shapes with their colours.",
)
_HAS: Final = (
    "Which image has the {thing}?",
    "Which picture shows {one}?",
    "In which image is the {thing}?",
    "Where is the {thing}: in the first image, the second, both or neither?",
)
_COMPARE: Final = (
    "Which image has {more} shapes?",
    "Which picture shows {more} shapes?",
    "Which of the two images has {more} shapes?",
    "In which image are there {more} shapes?",
)

# (dx, dy) that the axis of each direction points to, in pixels from the upper left corner.
AXES: Final[Mapping[str, tuple[int, int]]] = {
    "left": (-1, 0),
    "right": (1, 0),
    "above": (0, -1),
    "below": (0, 1),
}
_OPPOSITE: Final = {"left": "right", "right": "left", "above": "below", "below": "above"}
_RELATION: Final = {"left": "left of", "right": "right of", "above": "above", "below": "below"}
_EITHER: Final = (
    "Is the {first} {one} or {other} the {second}?",
    "Is the {first} {other} or {one} the {second}?",
    "The {first}: is it {one} or {other} the {second}?",
)
_WHERE: Final = (
    "Where is the {first}, seen from the {second}?",
    "Where is the {first} relative to the {second}?",
    "Is the {first} left, right, above or below the {second}?",
    "On which side of the {second} is the {first}?",
)
_WHICH: Final = (
    "Which shape is {relation} the {second}?",
    "What shape is {relation} the {second}?",
    "Name the shape {relation} the {second}.",
)
_SIDES: Final[Mapping[str, str]] = {
    "left": "on the left",
    "right": "on the right",
    "above": "at the top",
    "below": "at the bottom",
}
_AT_SIDE: Final = ("What is {place}?", "Which thing is {place}?", "What do you see {place}?")

# Pixels between centres that make a relation plain, and how much the other axis may have of it.
MARGIN: Final = 24.0
_SLOPE: Final = 0.6


def count(rng: Random) -> Case:
    """How many shapes, or of one kind, of one colour, of one look: 1 to 6, in digits."""
    answer = rng.randint(1, 6)
    wanted = random_look(rng)
    things, counts = rng.choice(
        (
            ("shapes", lambda _: True),
            (plural(wanted.kind), lambda look: look.kind == wanted.kind),
            (f"{wanted.colour} shapes", lambda look: look.colour == wanted.colour),
            (f"{wanted.colour} {plural(wanted.kind)}", lambda look: look == wanted),
        )
    )
    looks = [random_look(rng, counts) for _ in range(answer)]
    if things != "shapes":
        others = rng.randint(0, 6 - answer)
        looks += [random_look(rng, lambda look: not counts(look)) for _ in range(others)]
    scene = arrange(rng, rng.sample(looks, len(looks)))
    return exact([(scene,)], ask(rng, _HOW_MANY, things=things), str(answer))


def colour(rng: Random) -> Case:
    """The colour of the only shape of its kind; sometimes the kind of the only one of a colour."""
    looks = unlike_looks(rng, rng.choice((1, 2, 2, 3, 3, 4)))
    scene, asked = arrange(rng, looks), rng.choice(looks)
    if rng.random() < 0.2:
        return exact([(scene,)], ask(rng, _KIND, colour=asked.colour), asked.kind)
    thing = "shape" if len(looks) == 1 and rng.random() < 0.3 else asked.kind
    return exact([(scene,)], ask(rng, _COLOUR, thing=thing), asked.colour)


def position(rng: Random) -> Case:
    """Left, right, above, below; which shape lies there; what is at a side of the picture."""
    form = rng.choice((_either, _either, _where, _which, _at_side))
    return form(rng, unlike_looks(rng, rng.choice((2, 2, 3, 4))), rng.choice(tuple(AXES)))


def describe(rng: Random) -> Case:
    """All shapes, equal ones counted together, in a fixed order."""
    looks = distinct_looks(rng, rng.choice((1, 1, 2, 2, 2, 3)))
    room = 5 - len(looks)
    while room > 0 and rng.random() < 0.5:
        looks.append(rng.choice(looks))
        room -= 1
    scene = arrange(rng, rng.sample(looks, len(looks)))
    parts = groups(looks)
    grade = {"kind": "contains", "all": parts}
    return Case(((scene,),), ask(rng, _DESCRIBE), listed(parts), grade)


def two_images(rng: Random) -> Case:
    """Which of two images has a shape, or has more or fewer shapes."""
    return (_has if rng.random() < 0.6 else _compare)(rng)


def _has(rng: Random) -> Case:
    wanted, answer = random_look(rng), rng.choice(("first", "second", "both", "neither"))
    scenes = []
    for place in ("first", "second"):
        present = answer in (place, "both")
        looks = [wanted] if present else [_near(rng, wanted)]
        looks += distinct_looks(rng, rng.randint(0, 2), [wanted])
        scenes.append((arrange(rng, rng.sample(looks, len(looks))),))
    return exact(scenes, ask(rng, _HAS, thing=named(wanted), one=one(wanted)), answer)


def _near(rng: Random, wanted: Look) -> Look:
    """A look that shares the colour or the kind, so that one of them alone does not tell."""
    if rng.random() < 0.5:
        return random_look(rng, lambda look: look != wanted and look.colour == wanted.colour)
    return random_look(rng, lambda look: look != wanted and look.kind == wanted.kind)


def _compare(rng: Random) -> Case:
    more = rng.choice(("more", "fewer"))
    counts = rng.sample(range(1, 7), 2) if rng.random() < 0.75 else [rng.randint(1, 6)] * 2
    scenes = [(arrange(rng, [random_look(rng) for _ in range(size)]),) for size in counts]
    ahead = counts[0] - counts[1] if more == "more" else counts[1] - counts[0]
    answer = "equal" if ahead == 0 else "first" if ahead > 0 else "second"
    return exact(scenes, ask(rng, _COMPARE, more=more), answer)


def _either(rng: Random, looks: Sequence[Look], way: str) -> Case:
    """Left or right, above or below: of two named shapes, told apart on this axis."""
    scene = arrange(rng, looks, lambda spots: along(spots[0], spots[1], way) >= MARGIN)
    first, second = (_reference(rng, look) for look in looks[:2])
    sides = {"one": _RELATION[way], "other": _RELATION[_OPPOSITE[way]]}
    if rng.random() < 0.4:
        sides["one"], sides["other"] = sides["other"], sides["one"]
    return exact([(scene,)], ask(rng, _EITHER, first=first, second=second, **sides), way)


def _where(rng: Random, looks: Sequence[Look], way: str) -> Case:
    scene = arrange(rng, looks, lambda spots: _plainly(spots[0], spots[1], way))
    first, second = (_reference(rng, look) for look in looks[:2])
    return exact([(scene,)], ask(rng, _WHERE, first=first, second=second), way)


def _which(rng: Random, looks: Sequence[Look], way: str) -> Case:
    """The one shape on that side of another; all further ones are on its far side."""

    def accept(spots: Sequence[Spot]) -> bool:
        found, anchor, *others = spots
        far = all(along(other, anchor, way) <= -MARGIN / 2 for other in others)
        return far and _plainly(found, anchor, way)

    scene, second = arrange(rng, looks, accept), _reference(rng, looks[1])
    question = ask(rng, _WHICH, relation=_RELATION[way], second=second)
    return exact([(scene,)], question, looks[0].kind)


def _at_side(rng: Random, looks: Sequence[Look], way: str) -> Case:
    scene = arrange(
        rng, looks, lambda spots: all(along(spots[0], spot, way) >= MARGIN for spot in spots[1:])
    )
    return exact([(scene,)], ask(rng, _AT_SIDE, place=_SIDES[way]), one(look_of(scene.shapes[0])))


def along(first: Spot, second: Spot, way: str) -> float:
    """Pixels by which the first centre lies further that way than the second."""
    dx, dy = AXES[way]
    return (first.x - second.x) * dx + (first.y - second.y) * dy


def _plainly(first: Spot, second: Spot, way: str) -> bool:
    """Whether it lies that way and hardly to the sides."""
    ahead = along(first, second, way)
    dx, dy = abs(first.x - second.x), abs(first.y - second.y)
    return ahead >= MARGIN and min(dx, dy) <= _SLOPE * ahead


def _reference(rng: Random, look: Look) -> str:
    """A name of a shape whose colour and kind no other has."""
    return rng.choice((look.kind, look.kind, named(look), f"{look.colour} shape"))


IMAGE_CASES: Final[Mapping[str, Callable[[Random], Case]]] = {
    "image_count": count,
    "image_colour": colour,
    "image_position": position,
    "image_describe": describe,
    "two_images": two_images,
}
