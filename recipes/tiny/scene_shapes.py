"""Coloured shapes on a plain background, drawn with smooth edges into numpy arrays."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
Pixels = NDArray[np.uint8]

# Far enough apart that no jitter makes one look like another.
COLOURS: Final[Mapping[str, Colour]] = {
    "red": (214, 36, 44),
    "orange": (245, 130, 24),
    "yellow": (240, 212, 36),
    "green": (36, 156, 62),
    "cyan": (44, 200, 214),
    "blue": (40, 78, 216),
    "purple": (134, 48, 168),
    "pink": (246, 134, 190),
}
JITTER: Final = 10

KINDS: Final = ("circle", "square", "triangle", "diamond", "cross", "star")

# Farthest point of any shape from its centre, in sizes.
_REACH: Final = 0.65


@dataclass(frozen=True, slots=True)
class Spot:
    """Room for a shape: centre and size in pixels from the upper left corner, tilt in radians."""

    x: float
    y: float
    size: float
    tilt: float

    @property
    def reach(self) -> float:
        """Pixels from the centre that may be covered."""
        return _REACH * self.size


@dataclass(frozen=True, slots=True)
class Shape(Spot):
    """A shape at its spot; `rgb` is its shade of the colour."""

    colour: str
    kind: str
    rgb: Colour


@dataclass(frozen=True, slots=True)
class Scene:
    """Shapes that do not overlap. `noise` is the largest change of a pixel's brightness."""

    width: int
    height: int
    background: Colour
    shapes: tuple[Shape, ...]
    noise: int = 0
    noise_seed: int = 0


def draw(scene: Scene) -> Pixels:
    """The picture [height, width, 3] of a scene."""
    canvas = np.empty((scene.height, scene.width, 3), np.uint8)
    canvas[:] = scene.background
    for shape in scene.shapes:
        _paint(canvas, shape)
    return _noisy(canvas, scene) if scene.noise else canvas


def _paint(canvas: Pixels, shape: Shape) -> None:
    left, top = (max(0, math.floor(at - shape.reach - 2)) for at in (shape.x, shape.y))
    right, bottom = (math.ceil(at + shape.reach + 2) for at in (shape.x, shape.y))
    area = canvas[top:bottom, left:right]
    rows = np.arange(top, top + area.shape[0], dtype=np.float32)[:, None] + np.float32(
        0.5 - shape.y
    )
    columns = np.arange(left, left + area.shape[1], dtype=np.float32) + np.float32(0.5 - shape.x)
    outside = _distance(shape, columns, rows)
    cover = np.clip(np.float32(0.5) - outside, 0, 1)[:, :, None]
    colour = np.array(shape.rgb, np.float32)
    area[:] = np.rint(area + (colour - area) * cover)


def _distance(shape: Shape, x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Pixels from the outline, negative inside; a lower bound of it beyond corners."""
    size, tilt = shape.size, shape.tilt
    outside: NDArray[np.float32]
    match shape.kind:
        case "circle":
            outside = np.hypot(x, y) - np.float32(size / 2)
        case "square":
            outside = _edges(x, y, 4, tilt, 0.45 * size).max(axis=0)
        case "diamond":
            outside = _edges(x, y, 4, tilt + math.pi / 4, 0.44 * size).max(axis=0)
        case "triangle":
            outside = _edges(x, y, 3, tilt + math.pi / 2, 0.32 * size).max(axis=0)
        case "cross":
            edges = _edges(x, y, 4, tilt, 0.0)
            along, across = edges[::2].max(axis=0), edges[1::2].max(axis=0)
            long, short = np.float32(0.52 * size), np.float32(0.17 * size)
            lying = np.maximum(along - long, across - short)
            outside = np.minimum(lying, np.maximum(along - short, across - long))
        case "star":
            # A point of a pentagram is inside all of its five lines, or all but one.
            edges = _edges(x, y, 5, tilt - math.pi / 2, 0.2 * size)
            outside = np.sort(edges, axis=0)[-2]
        case other:
            raise ValueError(f"no shape is called {other!r}; there are {', '.join(KINDS)}")
    return outside


def _edges(
    x: NDArray[np.float32], y: NDArray[np.float32], count: int, turn: float, inner: float
) -> NDArray[np.float32]:
    """Signed distances [count, h, w] to the lines of a regular polygon around the origin."""
    angles = [turn + 2 * math.pi * corner / count for corner in range(count)]
    lines = [
        x * np.float32(math.cos(angle)) + (y * np.float32(math.sin(angle)) - np.float32(inner))
        for angle in angles
    ]
    return np.stack(lines)


def _noisy(canvas: Pixels, scene: Scene) -> Pixels:
    count = scene.height * scene.width
    raw = np.frombuffer(Random(scene.noise_seed).randbytes(count), np.uint8)
    noise = (raw % np.uint8(2 * scene.noise + 1)).astype(np.int16) - np.int16(scene.noise)
    noisy = canvas + noise.reshape(scene.height, scene.width, 1)
    return np.clip(noisy, 0, 255).astype(np.uint8)
