"""What a pass costs by its size: medians of the latest measurements, lines between them."""

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from statistics import median
from typing import Final

# Measurements of one size that count; a median of them ignores a stray one.
_REMEMBERED: Final = 5
# Later measurements after which a size that was not seen again is unknown, so that one bad
# measurement keeps nobody from a size for ever.
_FORGOTTEN: Final = 512


class CostCurve:
    """Seconds as a function of a size that is an integer above 0.

    `from_nothing` is for work that costs nothing at size 0.
    """

    def __init__(self, *, from_nothing: bool = False) -> None:
        self._from_nothing = from_nothing
        self._sizes: list[int] = []
        self._latest: dict[int, deque[float]] = {}
        self._cost: dict[int, float] = {}
        self._seen: OrderedDict[int, int] = OrderedDict()  # size to measurement, oldest first
        self._measured = 0

    @property
    def is_known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._sizes)

    def add(self, size: int, seconds: float) -> None:
        """Take in one measurement."""
        if size not in self._latest:
            insort(self._sizes, size)
            self._latest[size] = deque(maxlen=_REMEMBERED)
        self._latest[size].append(seconds)
        self._cost[size] = median(self._latest[size])
        self._measured += 1
        self._seen[size] = self._measured
        self._seen.move_to_end(size)
        oldest, when = next(iter(self._seen.items()))
        if self._measured - when > _FORGOTTEN:
            self._forget(oldest)

    def at(self, size: int) -> float:
        """Seconds at one size; see `between`."""
        return self.between(size, size)[0]

    def between(self, first: int, last: int) -> list[float]:
        """Seconds at each size from `first` to `last`, on lines between the sizes measured.

        Level outside of what is known, so that a size that nobody has tried looks cheap and is
        tried. 0 knowing nothing.
        """
        costs: list[float] = []
        index = bisect_left(self._sizes, first)
        while len(costs) <= last - first:
            start = first + len(costs)
            if index == len(self._sizes):
                level = self._cost[self._sizes[-1]] if self._sizes else 0.0
                return costs + [level] * (last - start + 1)
            above = self._sizes[index]
            least, slope = self._line(index)
            costs += [least + slope * (size - above) for size in range(start, min(above, last) + 1)]
            index += 1
        return costs

    def _line(self, index: int) -> tuple[float, float]:
        """Cost at the measured size of that index, and the slope of the line that ends there."""
        size = self._sizes[index]
        cost = self._cost[size]
        if index:
            below = self._sizes[index - 1]
            return cost, (cost - self._cost[below]) / (size - below)
        return cost, cost / size if self._from_nothing else 0.0

    def _forget(self, size: int) -> None:
        self._sizes.remove(size)
        for known in (self._latest, self._cost, self._seen):
            del known[size]
