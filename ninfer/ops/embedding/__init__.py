"""Contract of the embedding lookup, and of rows that stand in for looked-up ones."""

from typing import Final

import torch
from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.embedding import reference
from ninfer.ops.tensors import HostTable, Weight

_EMBED: Final = Route(reference.embed)
_SCATTER_ROWS: Final = Route(reference.scatter_rows)


def embed(ids: Tensor, table: Weight | HostTable, *, dtype: torch.dtype) -> Tensor:
    """Row ids[t] of the table for each t, decoded and rounded to `dtype`.

    Shapes: ids [T] int64, table [N, D] dense, grouped integer or FP8 by row -> [T, D]. Only the
    rows asked for are decoded. Domain: 0 <= ids < N. The host decodes those of a host table and
    waits for the ids of a device for that. Raises ValueError for ids of another type and for a
    block-FP4 table, whose scales are not stored by row.
    """
    if isinstance(table, HostTable):
        near = ids.cpu()
        checks.indices("embed", "ids", near, (ids.numel(),), near)
        checks.weight_matrix("embed", "table", table.stored, near, columns=table.shape[-1])
        return reference.embed(near, table.stored, dtype=dtype).to(ids.device)
    checks.indices("embed", "ids", ids, (ids.numel(),), ids)
    checks.weight_matrix("embed", "table", table, ids, columns=table.shape[-1])
    return _EMBED.run(ids, table, dtype=dtype)


def scatter_rows(x: Tensor, indices: Tensor, rows: Tensor) -> Tensor:
    """x with row indices[m] replaced by rows[m]; used for media in place of their placeholders.

    Shapes: x [T, D], indices [M] int64, rows [M, D] of the type of x -> [T, D]. Domain: the
    indices are different and in 0..T - 1. Raises ValueError for shapes or types that disagree.
    """
    checks.activation("scatter_rows", "x", x, 2)
    checks.indices("scatter_rows", "indices", indices, (rows.shape[0],), x)
    if rows.dtype is not x.dtype:
        raise checks.wrong("scatter_rows", "rows", rows.dtype, str(x.dtype))
    checks.shaped("scatter_rows", "rows", rows, (rows.shape[0], x.shape[1]), x)
    return _SCATTER_ROWS.run(x, indices, rows)
