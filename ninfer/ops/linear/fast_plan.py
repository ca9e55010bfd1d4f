"""Sizes of the CUDA kernels for a card, a format and a width: pure arithmetic.

How the columns are split (`Split`) decides the order of the sums, and the fragment order of a
weight. It depends on the architecture and the width only, never on the number of tokens. All other
sizes change time alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ninfer.ops.linear.fragment_order import code_bytes, groups_of, scale_bytes

# Ten times the compute capability of the cards that the kernels are made for.
ARCHITECTURES: Final = (80, 86, 89, 90, 100, 120)
# Up to this many tokens the streaming kernel runs, and up to WIDE one launch of the other.
FEW: Final = 16
WIDE: Final = 64
_KIB: Final = 1024
# Shared memory that one block may take, by architecture; others have that of their generation.
_SHARED: Final[Mapping[int, int]] = MappingProxyType({80: 163 * _KIB, 87: 163 * _KIB})
_SHARED_OF_GENERATION: Final[Mapping[int, int]] = MappingProxyType(
    {8: 99 * _KIB, 9: 227 * _KIB, 10: 227 * _KIB, 11: 227 * _KIB, 12: 99 * _KIB}
)
# Enough bytes of a ring to cover the latency of memory at full rate.
_RING: Final = 100 * _KIB
_BARRIERS: Final = 128
# Registers hold the activations of two groups of 16 tokens beside twenty warps' other needs.
_MOST_WARPS: Final = 20
_LEAST_WARPS: Final = 8


@dataclass(frozen=True, slots=True)
class Split:
    """Who sums which groups of 64 columns: `slices` blocks of `warps` warps of `groups` groups."""

    warps: int
    groups: int
    slices: int

    @property
    def slice_groups(self) -> int:
        """Groups of a slice, as the fragment order stores them."""
        return self.warps * self.groups


# Measured on one H200 with Q4: groups of a row -> split.
_LARGE: Final[Mapping[int, Split]] = MappingProxyType(
    {
        32: Split(16, 2, 1),
        64: Split(16, 2, 2),
        80: Split(20, 2, 2),
        96: Split(16, 3, 2),
        160: Split(20, 2, 4),
        272: Split(17, 2, 8),
    }
)


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Sizes of linear_stream; see cuda/stream.cu for what each means."""

    bits: int
    split: Split
    stages: int
    reducers: int
    token_tiles: int
    ahead: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.split.warps + self.reducers)

    @property
    def tile_sum(self) -> int:
        """Bytes of the sums of one row tile."""
        return 512 * self.token_tiles

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, without the tile sums that a cluster keeps."""
        sums = self.reducers * self.split.warps * self.tile_sum
        return self.stages * _stage(self.bits, self.split) + sums + _BARRIERS

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        return {
            "BITS": self.bits,
            "WARPS": self.split.warps,
            "GROUPS": self.split.groups,
            "SLICES": self.split.slices,
            "STAGES": self.stages,
            "REDUCERS": self.reducers,
            "TOKEN_TILES": self.token_tiles,
            "AHEAD": self.ahead,
        }


@dataclass(frozen=True, slots=True)
class WidePlan:
    """Sizes of linear_wide; see cuda/wide.cu for what each means."""

    bits: int
    row_warps: int
    stages: int
    token_tiles: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.row_warps

    @property
    def block_tiles(self) -> int:
        """Row tiles of a block."""
        return 2 * self.row_warps

    @property
    def block_sum(self) -> int:
        """Bytes of the sums of one row block."""
        return 512 * self.token_tiles * self.block_tiles

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the ring, and one word."""
        tile = code_bytes(self.bits) + scale_bytes(self.bits)
        return self.stages * (1024 * self.token_tiles + self.block_tiles * tile) + 16

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        return {
            "BITS": self.bits,
            "ROW_WARPS": self.row_warps,
            "STAGES": self.stages,
            "TOKEN_TILES": self.token_tiles,
        }


def shared_limit(architecture: int) -> int:
    """Bytes of shared memory that a block may take on an architecture of generation 8 or later."""
    generation = architecture // 10
    return _SHARED.get(architecture) or _SHARED_OF_GENERATION.get(generation, 99 * _KIB)


def split_of(architecture: int, columns: int) -> Split:
    """The split for rows of that many columns: measured, or what pads least."""
    groups = groups_of(columns)
    if shared_limit(architecture) >= 163 * _KIB:
        return _LARGE.get(groups) or _split(groups, _MOST_WARPS)
    # Half the warps: their sums and the ring have to share 99 KiB.
    return _split(groups, _MOST_WARPS // 2)


def stream_plan(architecture: int, bits: int, columns: int, tokens: int) -> StreamPlan:
    """Sizes for 1..16 tokens."""
    assert 1 <= tokens <= FEW, tokens
    return fitted(architecture, bits, split_of(architecture, columns), -(-tokens // 8))


def fitted(architecture: int, bits: int, split: Split, token_tiles: int) -> StreamPlan:
    """As many reducers and stages as fit, up to four and to what covers the latency.

    Registers are given to warps by fours, so reducers fill up the last four.
    """
    most = min(max(_RING // _stage(bits, split), 3), 6)
    for reducers in range(4 - split.warps % 4, 0, -1):
        for stages in range(most, 1, -1):
            plan = StreamPlan(bits, split, stages, reducers, token_tiles, ahead=min(2, stages))
            if plan.shared_bytes <= shared_limit(architecture):
                return plan
    raise AssertionError(f"no plan for {bits} bits, {split} on sm_{architecture}")


def wide_plan(architecture: int, bits: int, tokens: int) -> WidePlan:
    """Sizes for 17..64 tokens."""
    assert FEW < tokens <= WIDE, tokens
    plans = (WidePlan(bits, 8, n, 4 if tokens <= 32 else 8) for n in (4, 3))
    return next(plan for plan in plans if plan.shared_bytes <= shared_limit(architecture))


def _stage(bits: int, split: Split) -> int:
    size = split.slice_groups * (code_bytes(bits) + scale_bytes(bits))
    return -(-size // 128) * 128


def _split(groups: int, most: int) -> Split:
    """The split that pads least; among those the one of fewest slices, then of most warps."""
    choices = [
        Split(warps, count, slices)
        for slices in (1, 2, 4, 8, 16)
        for count in (1, 2)
        for warps in range(min(_LEAST_WARPS, groups), most + 1)
        if (slices - 1) * warps * count < groups <= slices * warps * count
    ]
    # What no split covers has more than 16 * most * 2 groups: then slices follow from the width.
    if not choices:
        return Split(most, 2, -(-groups // (most * 2)))
    return min(choices, key=lambda s: (s.slices * s.slice_groups, s.slices, -s.warps))
