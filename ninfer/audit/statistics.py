"""Intervals and tests for shares of right answers, and for paired differences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from typing import Final

import numpy as np

# Standard deviations that hold 95 % of a normal distribution.
_Z: Final = 1.959963984540054
# Of so many differences all sign flips are looked at; of more, so many draws.
_EXACT: Final = 12
_DRAWS: Final = 4000
_SEED: Final = 20260811


def wilson(right: int, total: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share; (0, 1) when nothing was tried."""
    if not total:
        return 0.0, 1.0
    share, z2 = right / total, _Z * _Z
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    spread = share * (1 - share) / total + z2 / (4 * total * total)
    half = _Z * sqrt(spread) / (1 + z2 / total)
    # Rounding must not leave the ends short of 0 and 1.
    low = 0.0 if right == 0 else max(0.0, centre - half)
    return low, 1.0 if right == total else min(1.0, centre + half)


def sign_test(lost: int, gained: int) -> float:
    """Chance of at least such an imbalance if losing and gaining were equally likely.

    The exact two-sided form of McNemar's test; 1 when nothing changed.
    """
    total, fewer = lost + gained, min(lost, gained)
    tail = sum(comb(total, count) for count in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << total))


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean of differences with its 95 % interval, and the chance of it without a difference."""

    middle: float
    low: float
    high: float
    chance: float
    count: int

    def mapped(self, call: Callable[[float], float]) -> "Interval":
        """The interval in another unit, by a function that only grows."""
        middle, low, high = call(self.middle), call(self.low), call(self.high)
        return Interval(middle, low, high, self.chance, self.count)


def paired_interval(differences: Sequence[float]) -> Interval | None:
    """Mean of paired differences; None for none.

    The interval is that of bootstrap means, the chance that of sign flips: the share of all flips,
    or of some drawn ones where there are too many, whose mean is as far from 0 or farther. The
    draws have a fixed seed. One difference has no interval of its own: both ends are it.
    """
    if not differences:
        return None
    values = np.asarray(differences, dtype=np.float64)
    draws = np.random.default_rng(_SEED)
    count = len(values)
    if count <= _EXACT:
        bits = np.arange(1 << count)[:, None] >> np.arange(count) & 1
        signs = 1.0 - 2.0 * bits
    else:
        signs = draws.choice([-1.0, 1.0], size=(_DRAWS, count))
    mean = float(values.mean())
    flipped = np.abs((signs * values).mean(axis=1))
    # Sums in another order differ in the last bits.
    chance = float((flipped >= abs(mean) * (1 - 1e-9)).mean())
    means = values[draws.integers(0, count, size=(_DRAWS, count))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(mean, float(low), float(high), chance, count)
