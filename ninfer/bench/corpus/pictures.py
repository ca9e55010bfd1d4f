"""The pictures and videos of the fixtures, drawn when they are needed."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ninfer.bench.corpus.canvas import Canvas, Colour, avi

_RED: Final[Colour] = (205, 40, 40)
_GREEN: Final[Colour] = (40, 140, 60)
_BLUE: Final[Colour] = (40, 80, 200)
_YELLOW: Final[Colour] = (240, 200, 30)
_BROWN: Final[Colour] = (120, 80, 50)
_SKY: Final[Colour] = (170, 210, 245)


def _chart() -> str:
    """A code above three red circles, and a blue square to the left of a green triangle."""
    canvas = Canvas(448, 448)
    canvas.text(60, 30, "CODE 482", 7)
    for x in (90, 224, 358):
        canvas.circle(x, 180, 42, _RED)
    canvas.box(130, 340, 110, 110, _BLUE)
    canvas.triangle(320, 340, 120, _GREEN)
    return canvas.png()


def _scene() -> str:
    """A house on grass with the number 36 on its box, the sun in the upper right corner."""
    canvas = Canvas(448, 448, _SKY)
    canvas.box(224, 400, 448, 120, _GREEN)
    canvas.circle(380, 70, 40, _YELLOW)
    canvas.box(170, 280, 180, 140, (230, 220, 200))
    canvas.triangle(170, 165, 210, _RED)
    canvas.box(170, 310, 44, 80, _BROWN)
    canvas.box(350, 380, 14, 90, _BROWN)
    canvas.box(350, 310, 110, 62, (250, 250, 250))
    canvas.text(318, 290, "36", 6)
    return canvas.png()


def _two_circles() -> str:
    canvas = Canvas(320, 320)
    for x in (90, 230):
        canvas.circle(x, 160, 48, _BLUE)
    return canvas.png()


def _three_circles_and_star() -> str:
    canvas = Canvas(320, 320)
    for x in (60, 160, 260):
        canvas.circle(x, 100, 38, _BLUE)
    canvas.star(160, 240, 60, _YELLOW)
    return canvas.png()


def _label() -> str:
    canvas = Canvas(320, 160)
    canvas.text(52, 54, "LARK", 9)
    return canvas.png()


def _sum_seven() -> str:
    canvas = Canvas(320, 160)
    canvas.text(40, 50, "1407", 9)
    return canvas.png()


def _sum_eight() -> str:
    canvas = Canvas(320, 160)
    canvas.text(40, 50, "853", 9)
    return canvas.png()


def _moving_circle() -> str:
    """A red circle goes from left to right above three green squares that stay."""
    frames = []
    for n in range(12):
        canvas = Canvas(160, 128)
        for x in (30, 80, 130):
            canvas.box(x, 104, 24, 24, _GREEN)
        canvas.circle(22 + n * 10, 44, 16, _RED)
        frames.append(canvas.pixels)
    return avi(frames, per_second=4)


def _counting_down() -> str:
    """Large numbers one after another: 2, 5, 8."""
    frames = []
    for n in range(12):
        canvas = Canvas(128, 128)
        canvas.text(34, 22, "258"[n // 4], 12)
        frames.append(canvas.pixels)
    return avi(frames, per_second=4)


_IMAGES: Final[Mapping[str, Callable[[], str]]] = {
    "chart": _chart,
    "scene": _scene,
    "two_circles": _two_circles,
    "three_circles_and_star": _three_circles_and_star,
    "label": _label,
    "number_1407": _sum_seven,
    "number_853": _sum_eight,
}
_VIDEOS: Final[Mapping[str, Callable[[], str]]] = {
    "moving_circle": _moving_circle,
    "numbers": _counting_down,
}


def drawn_part(name: str) -> dict[str, Any]:
    """The content part that shows a picture or video."""
    kind = "image_url" if name in _IMAGES else "video_url"
    draw = _IMAGES[name] if name in _IMAGES else _VIDEOS[name]
    return {"type": kind, kind: {"url": draw()}}
