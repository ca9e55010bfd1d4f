"""Rows of a weight as plain numbers, whatever its stored form."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ninfer.formats import Fp8RowMatrix, GroupedMatrix
from ninfer.ops.tensors import Weight

# 2 MiB of float32: a decoded block stays in a core's cache until the product has read it.
_BLOCK_WEIGHTS = 1 << 19
# Every packed form can be cut at multiples of this row count.
_ROW_BORDER = 128


def row_blocks(weight: Weight) -> Iterator[tuple[int, int]]:
    """Row ranges (start, stop) that cover a weight in blocks of bounded decoded size."""
    rows, columns = weight.shape
    step = max(_BLOCK_WEIGHTS // max(columns, 1) // _ROW_BORDER, 1) * _ROW_BORDER
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def decode_rows(weight: Weight, start: int, stop: int, dtype: torch.dtype) -> Tensor:
    """Rows start..stop - 1 as [stop - start, K]; a dense weight of that type is not copied."""
    if isinstance(weight, Tensor):
        return weight[start:stop].to(dtype)
    return weight.rows(start, stop).dequantise(dtype)


def gather_rows(weight: Weight, ids: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows `ids` [T] as [T, K]; only these rows are decoded.

    Raises ValueError for a packed form whose scales are not stored by row.
    """
    if isinstance(weight, Tensor):
        return weight.index_select(0, ids).to(dtype)
    shape = (ids.shape[0], weight.shape[1])
    if isinstance(weight, GroupedMatrix):
        return replace(
            weight,
            shape=shape,
            base=weight.base.index_select(0, ids),
            high=None if weight.high is None else weight.high.index_select(0, ids),
            scales=weight.scales.index_select(0, ids),
        ).dequantise(dtype)
    if isinstance(weight, Fp8RowMatrix):
        return replace(
            weight,
            shape=shape,
            codes=weight.codes.index_select(0, ids),
            scales=weight.scales.index_select(0, ids),
        ).dequantise(dtype)
    raise ValueError(f"gather_rows: a table in {weight.format} cannot be read by row")
