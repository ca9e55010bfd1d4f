"""Which sizes a product is launched with: few rows of activations in one tile, many in several."""

from dataclasses import dataclass
from typing import Final

from ninfer.ops import tuning
from ninfer.ops.tuning import Shape, Tile

# Up to this many tokens a call is one token tile, and a row's bits do not depend on their number.
FEW: Final = 64
# Not 8: Triton 3.6 makes products of 8 tokens for sm_90 by other instructions than those of more.
TOKEN_TILES: Final = (16, 32, FEW)
BLOCK: Final = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch: rows of half a program, tokens of a tile, and how columns are shared out."""

    half_rows: int
    tokens: int
    splits: int
    share: int  # blocks of 64 columns of a split
    unroll: int
    warps: int
    stages: int


def few_rows(tile: Tile, columns: int, count: int) -> Plan:
    """The plan for 1..64 tokens: the least token tile that holds them, all else by shape alone."""
    assert 1 <= count <= FEW, count
    return _plan(tile, columns, next(size for size in TOKEN_TILES if count <= size))


def many_rows(tile: Tile, columns: int) -> Plan:
    """The plan for more than 64 tokens."""
    return _plan(tile, columns, tile.tokens or FEW)


def plan(architecture: int, shape: Shape, count: int) -> Plan:
    """The plan for `count` tokens of a weight; `shape.many` says which route that is."""
    tile = tuning.tile(architecture, shape)
    if shape.many:
        return many_rows(tile, shape.columns)
    return few_rows(tile, shape.columns, count)


def _plan(tile: Tile, columns: int, tokens: int) -> Plan:
    blocks = -(-columns // BLOCK)
    unroll = tile.unroll if blocks % tile.unroll == 0 else 1
    passes = blocks // unroll
    share = -(-passes // tile.splits) * unroll
    # Rounding up can leave the last splits without columns.
    splits = -(-blocks // share)
    return Plan(tile.rows // 2, tokens, splits, share, unroll, tile.warps, tile.stages)
