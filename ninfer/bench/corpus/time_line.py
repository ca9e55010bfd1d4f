"""The time line of a response while it comes: seconds and characters, at points evenly thinned."""

import time
from typing import Final

_POINTS: Final = 200


class TimeLine:
    """Counts characters from its making on. `first` is when text came first, `total` the end."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._points: list[tuple[float, int]] = []
        self._count = 0
        self.first: float | None = None

    def add(self, characters: int) -> None:
        """So many characters came now."""
        if not characters:
            return
        at = self.seconds()
        if self.first is None:
            self.first = at
        self._count += characters
        self._points.append((round(at, 4), self._count))
        if len(self._points) >= 2 * _POINTS:
            self._points = self._points[1::2]

    def seconds(self) -> float:
        """Seconds since its making."""
        return time.perf_counter() - self._start

    @property
    def points(self) -> tuple[tuple[float, int], ...]:
        """The points, the last one that of the end."""
        found = self._points
        if found and found[-1][1] != self._count:
            found = [*found, (found[-1][0], self._count)]
        return tuple(found)
