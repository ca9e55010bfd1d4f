"""Loss curves of training logs as one SVG: `python -m recipes.tiny.plot OUT.svg NAME=LOG ...`."""

import argparse
import json
from collections.abc import Mapping, Sequence
from math import log10
from pathlib import Path
from typing import Final

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 400, 60, 40
_COLOURS: Final = ("#1b6ca8", "#c8553d", "#3a7d44", "#7b4b94", "#a67c00", "#555555")
_TICKS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

Curve = Sequence[tuple[float, float]]


def curves(logs: Mapping[str, Path]) -> dict[str, Curve]:
    """(seconds, loss) of the decoder and of the first MTP step, for each log."""
    found: dict[str, Curve] = {}
    for name, path in logs.items():
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for key in ("loss", "mtp1"):
            points = [(s["seconds"], s[key]) for s in lines if s["event"] == "step" and key in s]
            if points:
                found[f"{name} {key}"] = points
    return found


def svg(given: Mapping[str, Curve]) -> str:
    """One picture: time in seconds to the right, loss upwards on a logarithmic scale."""
    points = [point for curve in given.values() for point in curve]
    end = max(x for x, _ in points)
    low, high = (log10(f(y for _, y in points)) for f in (min, max))
    span = max(high - low, 1e-9)

    def at(x: float, y: float) -> tuple[float, float]:
        share = (log10(y) - low) / span
        return (
            _LEFT + x / end * (_WIDTH - _LEFT - 10),
            _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - 10),
        )

    parts = []
    for tick in _TICKS:
        if low <= log10(tick) <= high:
            _, y = at(0, tick)
            parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 10}" stroke="#ddd"/>')
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = _LEFT + share * (_WIDTH - _LEFT - 10)
        parts.append(
            f'<text x="{x:.0f}" y="{_HEIGHT - 18}" text-anchor="middle">{share * end:.0f} s</text>'
        )
    for index, (name, curve) in enumerate(given.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        path = "L".join("{:.1f} {:.1f}".format(*at(*point)) for point in curve)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        y = 24 + 16 * index
        parts.append(f'<text x="{_WIDTH - 180}" y="{y}" fill="{colour}">{name}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return f'{head} font-family="sans-serif" font-size="12">\n' + "\n".join(parts) + "\n</svg>\n"


def main() -> None:
    """Read the logs and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("logs", nargs="+", metavar="NAME=LOG")
    given = parser.parse_args()
    logs = dict(text.split("=", 1) for text in given.logs)
    picture = svg(curves({name: Path(path) for name, path in logs.items()}))
    given.out.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
