"""Sizes of the CUDA kernel that goes row by row: pure arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Keys and values of a head; the kernel is made for no other width.
WIDTH: Final = 128
_CLUSTERS_FROM: Final = 90
_LANES_OF_WARP: Final = 32


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How the matrix of a head is shared out; `rows` and `foresees` change no bit of a result."""

    pieces: int  # blocks of a head, each with 128 / pieces value columns
    warps: int
    lanes: int = 8  # threads of a value column
    rows: int = 16  # worked on at once
    foresees: bool = True  # asks for the matrix before the kernel before has ended

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.warps * _LANES_OF_WARP

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        columns = WIDTH // self.pieces
        numbers = 4 * (2 * WIDTH + 3 * columns + 4)
        inputs = 2 * (2 * WIDTH + columns)
        return self.rows * (numbers + inputs + 8) + 16

    def defines(self, heads: int, group: int, *, halves: bool) -> Mapping[str, int]:
        """Constants of the kernel for `heads` V heads, `group` of them to a key head.

        `halves`: the matrix is bfloat16.
        """
        return {
            "HEADS": heads,
            "GROUP": group,
            "PIECES": self.pieces,
            "WARPS": self.warps,
            "LANES": self.lanes,
            "ROWS": self.rows,
            "FORESEES": int(self.foresees),
            "STATE_BF16": int(halves),
        }


def row_plan(architecture: int) -> RowPlan:
    """The sizes for an architecture, as predicted: two blocks a head where blocks can meet."""
    return RowPlan(2, 8) if architecture >= _CLUSTERS_FROM else RowPlan(1, 16)
