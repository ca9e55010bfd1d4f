"""Contract of the embedding lookup."""

from typing import Final

import torch
from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.embedding import reference
from ninfer.ops.tensors import Weight

_EMBED: Final = Route(reference.embed)


def embed(ids: Tensor, table: Weight, *, dtype: torch.dtype) -> Tensor:
    """Row ids[t] of the table for each t, decoded and rounded to `dtype`.

    Shapes: ids [T] int64, table [N, D] dense, grouped integer or FP8 by row -> [T, D]. Only the
    rows asked for are decoded. Domain: 0 <= ids < N. Raises ValueError for ids of another type
    and for a block-FP4 table, whose scales are not stored by row.
    """
    checks.indices("embed", "ids", ids, (ids.numel(),), ids)
    checks.weight_matrix("embed", "table", table, ids, columns=table.shape[-1])
    return _EMBED.run(ids, table, dtype=dtype)
