"""Embedding lookup and row replacement in plain torch."""

import torch
from torch import Tensor

from ninfer.ops.tensors import Weight
from ninfer.ops.weights import gather_rows


def embed(ids: Tensor, table: Weight, *, dtype: torch.dtype) -> Tensor:
    """See the contract."""
    return gather_rows(table, ids, dtype)


def scatter_rows(x: Tensor, indices: Tensor, rows: Tensor) -> Tensor:
    """See the contract."""
    return x.index_copy(0, indices, rows)
