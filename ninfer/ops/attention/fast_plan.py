"""Sizes of the CUDA kernels of attention for a card, a cache format and heads: pure arithmetic.

Where keys are cut (`Cuts`) decides the order of a row's sums. It is the same for all calls,
never on the number of rows or on lengths; all other sizes change time alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from ninfer.ops.linear.fast_plan import shared_limit

# The head that the kernels are made for, and the page that a tile of keys lies in.
DIM: Final = 256
PAGE: Final = 64
# Cache formats by their number in cuda/cache.cuh.
FORMS: Final[Mapping[str, int]] = MappingProxyType({"bf16": 0, "int8": 1, "fp8": 2})
# Rows of a call, and sequences; more of either have other kernels.
MOST_ROWS: Final = 64
# Query rows of a tile: the products' columns, by eights.
MOST_TILES: Final = 4
THREADS: Final = 128
# A row of a head is added up by as many blocks.
JOIN_PARTS: Final = 4
_KEYS: Final = 32
# Registers of a multiprocessor, and what a thread needs by format and row tiles (compiled for
# sm_90): fewer would be kept in memory.
_REGISTERS: Final = 65536
_NEEDED: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {"bf16": (104, 128, 168, 168), "int8": (96, 128, 168, 168), "fp8": (96, 128, 168, 168)}
)
# Shared memory of a multiprocessor that blocks share, above the most one of them may take, and what
# the system keeps of it for each block.
_SPARE: Final = 1 << 10
_SYSTEM: Final = 1 << 10
_MOST_BLOCKS: Final = 6


@dataclass(frozen=True, slots=True)
class Cuts:
    """`shorts` splits of `short` positions from a sequence's start, then splits of `long`.

    Short ones let a short context fill the card, long ones keep the sums of a long one few.
    """

    shorts: int
    short: int
    long: int

    def splits(self, length: int) -> int:
        """Splits of the first `length` >= 1 positions."""
        behind = length - self.shorts * self.short
        return -(-length // self.short) if behind <= 0 else self.shorts + -(-behind // self.long)

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        return {"SHORTS": self.shorts, "SHORT": self.short, "LONG": self.long}


# By arithmetic, not measured: 8,192 positions of four heads are 256 items for 132 multiprocessors.
CUTS: Final = Cuts(shorts=64, short=128, long=512)


@dataclass(frozen=True, slots=True)
class AttendPlan:
    """Sizes of attend_splits and join_splits; see cuda/*.cu for what each means.

    The warps of join_splits decide the order of a row's sums as well.
    """

    form: str
    heads: int
    group: int
    tiles: int
    blocks: int
    cuts: Cuts
    join_warps: int = 16

    @property
    def rows(self) -> int:
        """Query rows of a tile."""
        return 8 * self.tiles

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, as Places in cuda/cache.cuh lays it out."""
        row = DIM * (2 if self.form == "bf16" else 1)
        ring = 4 * _KEYS * row
        queries, scores = self.tiles * 16 * 256, 4 * self.rows * _KEYS * 4
        key_unit, value_unit = self._scale_units
        scales = 2 * _KEYS * (2 * key_unit + value_unit)
        factors, spoiled = 2 * 4 * _KEYS * 4, 2 * _KEYS * 4
        ends = 7 * self.rows * 4
        return ring + queries + scores + scales + factors + spoiled + ends + MOST_ROWS * 16

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        return {
            "FORM": FORMS[self.form],
            "HEADS": self.heads,
            "GROUP": self.group,
            "NT": self.tiles,
            "BLOCKS": self.blocks,
            **self.cuts.defines,
        }

    @property
    def join_shared_bytes(self) -> int:
        """Shared memory of a block of join_splits: sums, weights and tops of its warps."""
        return self.join_warps * (256 + 4 + 4)

    @property
    def join_defines(self) -> dict[str, int]:
        """Compile-time constants of join_splits."""
        heads = self.heads * self.group
        return {"HEADS": heads, "WARPS": self.join_warps, **self.cuts.defines}

    @property
    def _scale_units(self) -> tuple[int, int]:
        return {"bf16": (0, 0), "int8": (4, 8), "fp8": (2 * self.heads, 2 * self.heads)}[self.form]


def attend_plan(
    architecture: int, form: str, heads: int, group: int, rows: int, cuts: Cuts = CUTS
) -> AttendPlan:
    """Sizes for sequences of up to about that many query rows a KV head.

    As many blocks a multiprocessor as its registers and its shared memory hold.
    """
    tiles = min(max(-(-rows // 8), 1), MOST_TILES)
    plan = AttendPlan(form, heads, group, tiles, 1, cuts)
    while plan.shared_bytes > shared_limit(architecture):
        tiles -= 1
        plan = replace(plan, tiles=tiles)
    memory = shared_limit(architecture) + _SPARE
    fit = memory // (plan.shared_bytes + _SYSTEM)
    registers = _REGISTERS // (THREADS * _NEEDED[form][tiles - 1])
    return replace(plan, blocks=max(min(fit, registers, _MOST_BLOCKS), 1))
