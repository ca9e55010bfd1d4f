"""Random scenes: which shapes, how large, where, and on what background."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import Final

from recipes.tiny.scene_shapes import COLOURS, JITTER, KINDS, Colour, Scene, Shape, Spot

# Sides that the engine's preprocessing leaves as they are: multiples of the 32 pixels of a token.
SIDES: Final = (128, 160, 192, 224)

# The smallest size, then the largest for one shape and more, as 128 x 128 pixels must hold them.
_SIZES: Final = (24.0, 56.0, 56.0, 46.0, 40.0, 34.0, 30.0)
_GAP: Final = 4.0
_TILT: Final = 0.12

# Half of the pictures are clean, which also keeps their files small.
_NOISE: Final = (0, 0, 0, 1, 2, 3)

Accept = Callable[[Sequence[Spot]], bool]


@dataclass(frozen=True, slots=True, order=True)
class Look:
    """What a shape is called."""

    colour: str
    kind: str


ALL_LOOKS: Final = tuple(Look(colour, kind) for colour in COLOURS for kind in KINDS)


def look_of(shape: Shape) -> Look:
    """Colour and kind of a shape."""
    return Look(shape.colour, shape.kind)


def random_look(rng: Random, accept: Callable[[Look], bool] = lambda _: True) -> Look:
    """A look that `accept` takes, all of them equally likely."""
    while not accept(look := rng.choice(ALL_LOOKS)):
        pass
    return look


def distinct_looks(rng: Random, count: int, taken: Collection[Look] = ()) -> list[Look]:
    """Looks that differ from each other and from those in `taken`."""
    looks: list[Look] = []
    while len(looks) < count:
        looks.append(random_look(rng, lambda look: look not in taken and look not in looks))
    return looks


def unlike_looks(rng: Random, count: int) -> list[Look]:
    """Looks of which no two share the colour or the kind."""
    colours, kinds = rng.sample(tuple(COLOURS), count), rng.sample(KINDS, count)
    return [Look(*pair) for pair in zip(colours, kinds, strict=True)]


def arrange(
    rng: Random,
    looks: Sequence[Look],
    accept: Accept = lambda _: True,
    *,
    sides: Sequence[int] = SIDES,
    noise: bool = True,
) -> Scene:
    """A scene of these looks, in their order, whose spots `accept` takes in that order.

    Six pictures of ten have the first of `sides`. Shapes keep a gap and stay inside. `accept` must
    be likely enough: spots are tried in all orders, then others, until it takes them.
    """
    plain = rng.random() < 0.6
    width, height = (sides[0] if plain else rng.choice(sides) for _ in "xy")
    spots = None
    while spots is None:
        found = _place(rng, len(looks), width, height)
        spots = next(filter(accept, permutations(found)), None) if found else None
    return Scene(
        width,
        height,
        random_background(rng),
        tuple(_shape(rng, spot, look) for spot, look in zip(spots, looks, strict=True)),
        noise=rng.choice(_NOISE) if noise else 0,
        noise_seed=rng.getrandbits(32),
    )


def fits(spot: Spot, others: Sequence[Spot], width: int, height: int) -> bool:
    """Whether a spot lies inside and keeps the gap to others."""
    edge = spot.reach + 2
    inside = edge <= spot.x <= width - edge and edge <= spot.y <= height - edge
    return inside and all(
        math.hypot(spot.x - other.x, spot.y - other.y) >= spot.reach + other.reach + _GAP
        for other in others
    )


def random_background(rng: Random) -> Colour:
    """Mostly near white, sometimes near black, with a slight tint."""
    base = rng.randint(22, 42) if rng.random() < 0.2 else rng.randint(222, 247)
    red, green, blue = (base + rng.randint(-8, 8) for _ in "rgb")
    return red, green, blue


def jittered(rng: Random, colour: str) -> Colour:
    """A shade of a colour."""
    red, green, blue = (min(255, value + rng.randint(-JITTER, JITTER)) for value in COLOURS[colour])
    return red, green, blue


def _shape(rng: Random, spot: Spot, look: Look) -> Shape:
    rgb = jittered(rng, look.colour)
    return Shape(spot.x, spot.y, spot.size, spot.tilt, look.colour, look.kind, rgb)


def _place(rng: Random, count: int, width: int, height: int) -> list[Spot] | None:
    """Random spots; None when the last ones found no room."""
    spots: list[Spot] = []
    for _ in range(count):
        size, tilt = rng.uniform(_SIZES[0], _SIZES[count]), rng.uniform(-_TILT, _TILT)
        for _ in range(40):
            spot = Spot(rng.uniform(0, width), rng.uniform(0, height), size, tilt)
            if fits(spot, spots, width, height):
                spots.append(spot)
                break
        else:
            return None
    return spots
