"""Sizes of the CUDA kernels for 17 to 64 tokens, for a card, a format and a fragment order.

Which row tiles and groups a block has decides where sums are cut, and so their order: that must
not depend on the number of tokens. All other sizes change time alone.
"""

from dataclasses import dataclass
from typing import Final

from ninfer.ops.linear.fast_plan import FEW, WIDE, shared_limit
from ninfer.ops.linear.fragment_order import code_bytes, scale_bytes

# Bytes of one token's 64 columns.
_ROW: Final = 128
_KIB: Final = 1024
_BARRIERS: Final = 144
# The architecture whose products take whole warpgroups.
_WARPGROUPS: Final = 90


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
        return self.stages * (8 * _ROW * self.token_tiles + self.block_tiles * tile) + 16

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        return {
            "BITS": self.bits,
            "ROW_WARPS": self.row_warps,
            "STAGES": self.stages,
            "TOKEN_TILES": self.token_tiles,
        }


@dataclass(frozen=True, slots=True)
class WarpgroupPlan:
    """Sizes of linear_warpgroup; see cuda/warpgroup.cu for what each means."""

    bits: int
    row_groups: int
    subtiles: int
    stages: int
    stage_groups: int
    token_tiles: int

    @property
    def threads(self) -> int:
        """Threads of a block: those that multiply, and a warpgroup of which one warp copies."""
        return 128 * (self.row_groups + 1)

    @property
    def tokens(self) -> int:
        """Tokens that the activations are filled up to."""
        return 8 * self.token_tiles

    @property
    def block_tiles(self) -> int:
        """Row tiles of a block."""
        return 4 * self.row_groups * self.subtiles

    @property
    def block_sum(self) -> int:
        """Bytes of the sums of one row block."""
        return 512 * self.token_tiles * self.block_tiles

    @property
    def unit_bytes(self) -> int:
        """Bytes of the arranged activations of one stage."""
        return self.stage_groups * self.tokens * _ROW

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the ring, its barriers, and one word."""
        tile = code_bytes(self.bits) + scale_bytes(self.bits)
        stage = self.unit_bytes + self.stage_groups * self.block_tiles * tile
        return self.stages * (-(-stage // _KIB) * _KIB) + _BARRIERS

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        return {
            "BITS": self.bits,
            "ROW_GROUPS": self.row_groups,
            "SUBTILES": self.subtiles,
            "STAGES": self.stages,
            "STAGE_GROUPS": self.stage_groups,
            "TOKEN_TILES": self.token_tiles,
        }


def many_plan(
    architecture: int, bits: int, slice_groups: int, tokens: int
) -> WidePlan | WarpgroupPlan:
    """Sizes for 17..64 tokens of a weight whose slices have that many groups."""
    assert FEW < tokens <= WIDE, tokens
    token_tiles = 4 if tokens <= WIDE // 2 else 8
    if architecture == _WARPGROUPS:
        return warpgroup_plan(architecture, bits, slice_groups, token_tiles)
    limit = shared_limit(architecture)
    # Chosen for the most tokens, since the rows of a block may not depend on their number.
    sizes = ((12, 4), (12, 3), (8, 4), (8, 3))
    rows, stages = next(
        size for size in sizes if WidePlan(bits, *size, WIDE // 8).shared_bytes <= limit
    )
    return WidePlan(bits, rows, stages, token_tiles)


def warpgroup_plan(
    architecture: int,
    bits: int,
    slice_groups: int,
    token_tiles: int,
    row_groups: int = 3,
    subtiles: int = 1,
) -> WarpgroupPlan:
    """As many groups a stage as divide a slice and leave room for three stages of 64 tokens."""

    def plan(stages: int, groups: int, tiles: int) -> WarpgroupPlan:
        return WarpgroupPlan(bits, row_groups, subtiles, stages, groups, tiles)

    limit = shared_limit(architecture)
    groups = next(
        count
        for count in (4, 2, 1)
        if slice_groups % count == 0 and plan(3, count, WIDE // 8).shared_bytes <= limit
    )
    stages = (8, 7, 6, 5, 4, 3)
    return next(
        found
        for found in (plan(count, groups, token_tiles) for count in stages)
        if found.shared_bytes <= limit
    )
