"""Plots as inline SVG: axes, points, lines and bands, in the colours of the page."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

WIDTH: Final = 640
HEIGHT: Final = 320
_LEFT: Final = 62
_RIGHT: Final = 26
_TOP: Final = 14
_BOTTOM: Final = 46
# Points of a plot; more could not be told apart, and would make the page large.
MOST_POINTS: Final = 1500

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Point:
    """One point: `mark` is its class, which gives shape and colour; `text` is shown on hovering."""

    x: float
    y: float
    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from `low` to `high` with a title and a way to write its numbers."""

    title: str
    low: float
    high: float
    show: Format

    def ticks(self) -> list[float]:
        """Four to eight round values within the scale."""
        span = self.high - self.low
        step = 10.0 ** math.floor(math.log10(span / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 8)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def axis(title: str, values: Iterable[float], show: Format, top: float | None = None) -> Axis:
    """A scale from 0 to `top`, or to a little above the largest value."""
    largest = max(values, default=0.0)
    return Axis(title, 0.0, top if top is not None else (largest * 1.06 or 1.0), show)


@dataclass(slots=True)
class Plot:
    """A plot that is drawn part by part; `title` and `text` are for those who cannot see it."""

    title: str
    text: str
    x: Axis
    y: Axis
    _parts: list[str] = field(default_factory=list)

    def points(self, points: Sequence[Point]) -> None:
        """Draw points: circles, squares for marks with `square`, crosses for those with `cross`."""
        for point in points:
            x, y = self._x(point.x), self._y(point.y)
            hint = f"<title>{escape(point.text)}</title>"
            if "cross" in point.mark:
                shape = f'<path d="M{x - 4} {y - 4}l8 8m0-8l-8 8"'
            elif "square" in point.mark:
                shape = f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8"'
            else:
                shape = f'<circle cx="{x}" cy="{y}" r="4.5"'
            kind = shape[1 : shape.index(" ")]
            self._parts.append(f'{shape} class="{escape(point.mark)}">{hint}</{kind}>')

    def line(self, places: Sequence[tuple[float, float]], mark: str) -> None:
        """Draw a line through places."""
        path = " ".join(f"{self._x(x)},{self._y(y)}" for x, y in places)
        self._parts.append(f'<polyline points="{path}" class="{mark}"/>')

    def band(self, low: float, high: float, mark: str, text: str) -> None:
        """Mark all between two values of x."""
        x, width = self._x(low), round(self._x(high) - self._x(low), 1)
        height = HEIGHT - _TOP - _BOTTOM
        self._parts.append(
            f'<rect x="{x}" y="{_TOP}" width="{max(width, 1)}" height="{height}" class="{mark}">'
            f"<title>{escape(text)}</title></rect>"
        )

    def draw(self) -> str:
        """The plot as an `svg` element."""
        label = escape(f"{self.title}. {self.text}")
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
            f"{self._grid()}{''.join(self._parts)}</svg>"
        )

    def _grid(self) -> str:
        parts = []
        for value in self.y.ticks():
            y = self._y(value)
            parts.append(f'<path d="M{_LEFT} {y}H{WIDTH - _RIGHT}" class="grid"/>')
            shown = escape(self.y.show(value))
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" class="end">{shown}</text>')
        for value in self.x.ticks():
            x, shown = self._x(value), escape(self.x.show(value))
            parts.append(f'<path d="M{x} {_TOP}V{HEIGHT - _BOTTOM}" class="grid"/>')
            parts.append(f'<text x="{x}" y="{HEIGHT - _BOTTOM + 16}" class="mid">{shown}</text>')
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        parts.append(
            f'<text x="{middle}" y="{HEIGHT - 8}" class="mid title">{escape(self.x.title)}</text>'
        )
        half = (HEIGHT - _BOTTOM + _TOP) / 2
        parts.append(
            f'<text x="14" y="{half}" class="mid title" transform="rotate(-90 14 {half})">'
            f"{escape(self.y.title)}</text>"
        )
        return "".join(parts)

    def _x(self, value: float) -> float:
        share = (value - self.x.low) / (self.x.high - self.x.low)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def _y(self, value: float) -> float:
        share = (value - self.y.low) / (self.y.high - self.y.low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)


def thinned(points: Sequence[Point]) -> Sequence[Point]:
    """At most MOST_POINTS of them, evenly chosen."""
    if len(points) <= MOST_POINTS:
        return points
    return [points[n * len(points) // MOST_POINTS] for n in range(MOST_POINTS)]


def percent(value: float) -> str:
    """`40 %`."""
    return f"{value:.0%}".replace("%", " %")


def plain(value: float) -> str:
    """A number without needless digits."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
