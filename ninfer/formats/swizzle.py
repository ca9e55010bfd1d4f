"""Order of block scales in 128x4 tiles, the layout that CUTLASS and cuBLASLt read."""

from typing import Final

from torch import Tensor

TILE_ROWS: Final = 128
TILE_COLUMNS: Final = 4


def scale_position(row: int, column: int, columns: int) -> int:
    """Index in the flat scale plane of the scale of `row` and `column` of a [N, columns] grid.

    Tiles of 128 rows and 4 columns (512 bytes) lie row-major; inside a tile the order is
    (row mod 32, row div 32, column).
    """
    tile = (row // TILE_ROWS) * (columns // TILE_COLUMNS) + column // TILE_COLUMNS
    lane = (row % 32) * 16 + (row % TILE_ROWS) // 32 * 4 + column % TILE_COLUMNS
    return tile * TILE_ROWS * TILE_COLUMNS + lane


def swizzle(scales: Tensor) -> Tensor:
    """Flat tile order [N * G] of a row-major scale grid [N, G]; N mod 128 == 0, G mod 4 == 0."""
    rows, columns = scales.shape
    tiles = scales.reshape(rows // TILE_ROWS, 4, 32, columns // TILE_COLUMNS, TILE_COLUMNS)
    return tiles.permute(0, 3, 2, 1, 4).reshape(-1)


def unswizzle(flat: Tensor, rows: int) -> Tensor:
    """Row-major scale grid [N, G] of a flat plane in tile order; inverse of swizzle."""
    columns = flat.numel() // rows
    tiles = flat.reshape(rows // TILE_ROWS, columns // TILE_COLUMNS, 32, 4, TILE_COLUMNS)
    return tiles.permute(0, 3, 2, 1, 4).reshape(rows, columns)
