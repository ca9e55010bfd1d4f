"""Intervals and tests for shares of right answers."""

from math import comb, sqrt
from typing import Final

# Standard deviations that hold 95 % of a normal distribution.
_Z: Final = 1.959963984540054


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
