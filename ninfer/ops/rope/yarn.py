"""YaRN: which rotations keep their frequency in a stretched context, and how much scores grow."""

from math import ceil, floor, log, pi
from typing import Final

# Whole turns over the native context above which a pair keeps its frequency, and below which it is
# slowed down by the whole factor; the values of the paper and of Qwen's own configurations.
_FAST: Final = 32
_SLOW: Final = 1


def ramp(theta: float, rotary_dim: int, native: int) -> tuple[float, float]:
    """Pairs up to the first keep their frequency, from the second on it is divided; between them
    both are mixed in proportion. The second is larger."""

    def pair(turns: float) -> float:
        return rotary_dim * log(native / (turns * 2 * pi)) / (2 * log(theta))

    low, high = max(floor(pair(_FAST)), 0), min(ceil(pair(_SLOW)), rotary_dim - 1)
    return float(low), float(high) if high > low else low + 0.001


def magnitude(factor: float) -> float:
    """What the rotated numbers of queries and of keys grow by."""
    return 0.1 * log(factor) + 1.0
