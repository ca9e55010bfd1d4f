"""Counter-based uniform numbers: a function of seed, position and purpose, without any state."""

from enum import IntEnum
from typing import Final

_MASK: Final = (1 << 64) - 1


class Purpose(IntEnum):
    """What a number is drawn for; one position can need several independent numbers."""

    PREFILL = 0
    DECODE = 1
    ACCEPT = 2
    CORRECTION = 3
    BONUS = 4
    PROPOSAL = 5


def uniform_bits(seed: int, position: int, purpose: int, sub: int = 0) -> int:
    """The 24-bit integer behind `uniform`: the top bits of a chain of two splitmix64 mixes.

    `seed` counts modulo 2^64. `sub` tells apart several draws for one purpose and position.
    """
    key = _mix((seed ^ (position * 0xD1B54A32D192ED03)) & _MASK)
    key = _mix((key ^ (purpose << 21) ^ (sub * 0x2545F4914F6CDD1D)) & _MASK)
    return key >> 40


def uniform(seed: int, position: int, purpose: int, sub: int = 0) -> float:
    """A number in [0, 1) on a grid of 2^-24, exact in float32."""
    return uniform_bits(seed, position, purpose, sub) / (1 << 24)


def _mix(x: int) -> int:
    """One step of splitmix64 (Steele, Lea and Flood 2014) on a 64-bit integer."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
