"""Sizes of the CUDA kernels for a card, a format and a width: pure arithmetic.

How the columns are split (`Split`) decides the order of the sums, and the fragment order of a
weight. It depends on architecture, format and width only, never on the number of tokens. All other
sizes change time alone. `wide_plan` has the sizes for more than 16 tokens.
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
_MOST_REDUCERS: Final = 4
# Registers of a multiprocessor, and what a reducer has once it left the rest to multiplying warps.
_REGISTERS: Final = 65536
_REDUCER_REGISTERS: Final = 40
# What a thread of a multiplying warp needs for the activations of a group and token tile (eight
# words, two offsets, addresses), and beside activations, sums and words: by what was compiled.
_ACTIVATION_REGISTERS: Final = 12
_OTHER_REGISTERS: Final = 24
# More slices than this meet in memory: few clusters of more blocks fit a card at once.
_MOST_CLUSTERED: Final = 8
# The architecture that can move registers between warpgroups.
_WARPGROUPS: Final = 90


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


# Measured on one H200: groups of a row -> split.
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
# The same where one format of that width wants another: bits and groups -> split. Q5 of 6144
# columns is 1 to 3 % faster at 1, 8 and 16 tokens.
_LARGE_OF_BITS: Final[Mapping[tuple[int, int], Split]] = MappingProxyType(
    {(5, 96): Split(12, 4, 2)}
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
    twins: int = 1
    multiplier_registers: int = 0
    clusters: bool = True

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
            "TWINS": self.twins,
            "MULTIPLIER_REGISTERS": self.multiplier_registers,
        }


def shared_limit(architecture: int) -> int:
    """Bytes of shared memory that a block may take on an architecture of generation 8 or later."""
    generation = architecture // 10
    return _SHARED.get(architecture) or _SHARED_OF_GENERATION.get(generation, 99 * _KIB)


def split_of(architecture: int, bits: int, columns: int) -> Split:
    """The split for rows of that many columns: measured, or what pads least."""
    groups = groups_of(columns)
    if shared_limit(architecture) >= 163 * _KIB:
        measured = _LARGE_OF_BITS.get((bits, groups)) or _LARGE.get(groups)
        return measured or _split(groups, _MOST_WARPS)
    # Half the warps: their sums and the ring have to share 99 KiB.
    return _split(groups, _MOST_WARPS // 2)


def stream_plan(architecture: int, bits: int, columns: int, tokens: int) -> StreamPlan:
    """Sizes for 1..16 tokens."""
    assert 1 <= tokens <= FEW, tokens
    return fitted(architecture, bits, split_of(architecture, bits, columns), -(-tokens // 8))


def fitted(
    architecture: int, bits: int, split: Split, token_tiles: int, *, ring: int = _RING
) -> StreamPlan:
    """As many reducers and stages as fit, up to four and to what covers the latency.

    Registers are given to warps by fours, so reducers fill up the last four. Where activations
    leave too few of them, multiplying warps take over what the reducers do not need.
    """
    most = min(max(ring // _stage(bits, split), 3), 6)
    for reducers in range(_MOST_REDUCERS - split.warps % 4, 0, -1):
        threads = 32 * (split.warps + reducers)
        twins, registers = _register_use(architecture, bits, split, token_tiles, threads)
        for stages in range(most, 1, -1):
            plan = StreamPlan(
                bits,
                split,
                stages,
                reducers,
                token_tiles,
                ahead=min(2, stages),
                twins=twins,
                multiplier_registers=registers,
                clusters=split.slices <= _MOST_CLUSTERED,
            )
            if plan.shared_bytes <= shared_limit(architecture):
                return plan
    raise AssertionError(f"no plan for {bits} bits, {split} on sm_{architecture}")


def _register_use(
    architecture: int, bits: int, split: Split, token_tiles: int, threads: int
) -> tuple[int, int]:
    """Groups in flight together, and registers of multiplying warps (0: those of the launch)."""
    warps = -(-threads // 128) * 4
    launched = min(_REGISTERS // (32 * warps) // 8 * 8, 255)
    fixed = split.groups * token_tiles * _ACTIVATION_REGISTERS + 4 * token_tiles + _OTHER_REGISTERS
    one = 4 * token_tiles + bits + 1
    if bits < 8 and split.groups > 1 and fixed + 2 * one <= launched:
        return 2, 0
    reducers = threads // 32 - split.warps
    may_move = split.warps % 4 == 0 and reducers == _MOST_REDUCERS
    if architecture != _WARPGROUPS or not may_move or fixed + one <= launched:
        return 1, 0
    moved = launched * (split.warps + reducers) - _REDUCER_REGISTERS * reducers
    return 1, moved // split.warps // 8 * 8


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
