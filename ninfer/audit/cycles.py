"""Cycles: stretches of a sequence that repeat with a fixed period, however long the period is.

A window of the sequence is known by a hash of 64 bits. Sorting the hashes tells for each place how
far back the same window stood; where this distance is the same at neighbouring places, a stretch
repeats with it. A sequence without two equal windows costs one sort. Otherwise the window doubles
while two are equal, so each period meets a window that is longer than it and sees it exactly: the
costs are those of one sort for each doubling.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Symbols = NDArray[np.int64]
_Hashes = NDArray[np.uint64]

_BASE: Final = 0x9E3779B97F4A7C15
_MIX: Final = np.uint64(0xBF58476D1CE4E5B9)
_WORD: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Cycle:
    """Places `start` to `start + length` repeat: each equals the one `period` places before it."""

    start: int
    length: int
    period: int

    @property
    def end(self) -> int:
        """The place behind its last."""
        return self.start + self.length

    @property
    def copies(self) -> float:
        """How often the period stands in it."""
        return self.length / self.period


def find_cycles(symbols: Symbols, shortest: int) -> list[Cycle]:
    """Stretches of at least `shortest` places and two periods, apart from each other, in order.

    Each has its smallest period and cannot be made longer. Found for certain is whatever has three
    periods; of two, what does not repeat a half of its period inside.
    """
    width = 1 << max((shortest // 2).bit_length() - 1, 0)
    if len(symbols) < max(shortest, width + 1):
        return []
    hashes = window_hashes(symbols, width)
    found: list[Cycle] = []
    while True:
        distance = _distances(hashes)
        if not distance.any():
            break
        found += _runs(distance, width, shortest)
        if len(hashes) <= width:
            break
        hashes = _doubled(hashes, width)
        width *= 2
    return _apart([cycle for cycle in found if _repeats(symbols, cycle)])


def window_hashes(symbols: Symbols, width: int) -> _Hashes:
    """A hash of each window of `width` places, a power of two."""
    assert width > 0 and width & (width - 1) == 0, width
    hashes = (symbols.astype(np.uint64) + np.uint64(1)) * _MIX
    hashes ^= hashes >> np.uint64(31)
    step = 1
    while step < width:
        hashes = _doubled(hashes, step)
        step *= 2
    return hashes


def _doubled(hashes: _Hashes, width: int) -> _Hashes:
    """Hashes of windows of twice the width; overflow is the arithmetic modulo 2**64."""
    power = np.uint64(pow(_BASE, width, _WORD + 1))
    return hashes[:-width] * power + hashes[width:]


def _distances(hashes: _Hashes) -> Symbols:
    """How far before each window the same one stood last; 0 for a new one."""
    order = np.argsort(hashes, kind="stable")
    same = hashes[order[1:]] == hashes[order[:-1]]
    distance = np.zeros(len(hashes), dtype=np.int64)
    later = order[1:][same]
    distance[later] = later - order[:-1][same]
    return distance


def _runs(distance: Symbols, width: int, shortest: int) -> list[Cycle]:
    ends = np.flatnonzero(np.diff(distance)) + 1
    starts = np.concatenate(([0], ends))
    ends = np.append(ends, len(distance))
    period = distance[starts]
    length = ends - starts - 1 + period + width
    kept = np.flatnonzero((period > 0) & (length >= np.maximum(2 * period, shortest)))
    return [
        Cycle(int(starts[n] - period[n]), int(length[n]), int(period[n])) for n in kept.tolist()
    ]


def _repeats(symbols: Symbols, cycle: Cycle) -> bool:
    """Whether it is one; two different windows may have one hash."""
    later = symbols[cycle.start + cycle.period : cycle.end]
    return bool(np.array_equal(later, symbols[cycle.start : cycle.end - cycle.period]))


def _apart(cycles: list[Cycle]) -> list[Cycle]:
    """The longest ones that do not overlap, in order; of equally long ones the smallest period."""
    kept: list[Cycle] = []
    for cycle in sorted(cycles, key=lambda one: (-one.length, one.period)):
        if all(cycle.end <= other.start or cycle.start >= other.end for other in kept):
            kept.append(cycle)
    return sorted(kept, key=lambda one: one.start)
