"""Which replica takes a request: the rule that the gateway follows and the simulator plays."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

AFFINITY: Final = "affinity"
LEAST: Final = "least-loaded"
RANDOM: Final = "random"
ROUTINGS: Final = (AFFINITY, LEAST, RANDOM)

# Requests that a replica may have beyond the idlest one before it counts as overloaded, once its
# places are all taken, as a share of its places.
SLACK: Final = 0.5
# Added for each request ever sent: of equally loaded replicas the one that had fewer comes first.
ROUTED: Final = 1e-9
# More than what all of these can come to, less than one request.
_LEVEL: Final = 0.25


class Loads:
    """Requests under way at each replica, by position, kept as one array for fast minima."""

    def __init__(self, replicas: int, places: int) -> None:
        """`places` is how many requests a replica runs at once."""
        self._values: npt.NDArray[np.float64] = np.zeros(replicas)
        self._places: Final = places
        self._most_ahead: Final = max(1.0, places * SLACK) + _LEVEL

    def take(self, replica: int) -> None:
        """A request goes there."""
        self._values[replica] += 1 + ROUTED

    def give(self, replica: int) -> None:
        """A request there has ended."""
        self._values[replica] -= 1

    def least(self) -> int:
        """The replica with the fewest requests."""
        return int(self._values.argmin())

    def is_overloaded(self, replica: int) -> bool:
        """Whether its places are taken and another replica is idler by more than the slack."""
        load = self._values[replica]
        if load < self._places:
            return False
        return bool(load - self._values.min() > self._most_ahead)

    def choose(self, home: int | None) -> int:
        """The home of the conversation unless it is overloaded, else the idlest replica."""
        if home is not None and not self.is_overloaded(home):
            return home
        return self.least()


def loads_of(active: Sequence[tuple[int, int]], places: int) -> Loads:
    """Loads from (requests under way, requests ever sent) of each replica."""
    loads = Loads(len(active), places)
    loads._values[:] = [running + sent * ROUTED for running, sent in active]
    return loads
