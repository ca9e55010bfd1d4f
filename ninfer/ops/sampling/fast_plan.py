"""Sizes of the CUDA draw: how a row lies in the shared memory of a cluster; pure arithmetic.

None of them changes a result: weights are whole numbers, whose sums have no order.
"""

from dataclasses import dataclass
from typing import Final

# Clusters are Hopper's; consumer cards have too little shared memory for a row.
ARCHITECTURES: Final = (90, 100)
# Ids up to which sums of weights fit 63 bits, and those of a block's fields 32.
MOST_IDS: Final = 1 << 18
_BINS: Final = 2048
_WARPS: Final = 32
# Blocks of a row: larger clusters than 8 need a card's leave, and as many are not always resident.
WIDE: Final = 16
NARROW: Final = 8
# With so many rows narrow clusters of them fit a card at once where wide ones take more turns.
FEW_ROWS: Final = 4
_LISTED: Final = {WIDE: 4096, NARROW: 2048}
_ALIGNMENT: Final = 32


@dataclass(frozen=True, slots=True)
class DrawPlan:
    """Sizes of draw_tokens; see cuda/draw.cu and cuda/row.cuh."""

    cluster: int
    chunk: int  # ids of a block
    listed: int  # logits that are sorted
    dtype: int
    warps: int = _WARPS

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        work = max(16 * _BINS, 8 * self.listed)
        sums = 12 * _BINS // self.cluster + 12 * _BINS
        return work + sums + 8 * self.listed + 512 + 256 + 4 * self.chunk

    @property
    def defines(self) -> dict[str, int]:
        """Compile-time constants."""
        return {
            "CLUSTER": self.cluster,
            "WARPS": self.warps,
            "LIST": self.listed,
            "DTYPE": self.dtype,
        }


def draw_plan(rows: int, limit: int, dtype: int, cluster: int | None = None) -> DrawPlan:
    """Sizes for `rows` rows of `limit` ids; `cluster` replaces the number of blocks of a row."""
    assert 1 <= limit <= MOST_IDS, limit
    blocks = cluster or (WIDE if rows <= FEW_ROWS else NARROW)
    chunk = -(-limit // (blocks * _ALIGNMENT)) * _ALIGNMENT
    return DrawPlan(blocks, chunk, _LISTED[blocks], dtype)
