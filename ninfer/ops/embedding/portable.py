"""The embedding lookup by Triton kernels."""

from typing import Final

import torch
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.formats import Fp8RowMatrix
from ninfer.ops.embedding import kernels
from ninfer.ops.launch import INTERPRETED, launch
from ninfer.ops.linear.fragment_order import FragmentMatrix, groups_of
from ninfer.ops.tensors import Weight

_TYPES: Final = (torch.bfloat16, torch.float16, torch.float32)
_BLOCKS: Final = 16
_COLUMNS: Final = 1024


def embed(ids: Tensor, table: Weight, *, dtype: torch.dtype) -> Tensor:
    """See the contract."""
    if dtype not in _TYPES:
        raise UnsupportedError(f"embed: no Triton kernel for rows of {dtype}; use bf16")
    count, width = ids.shape[0], table.shape[1]
    # The interpreter cuts float32 down to bf16 where a card rounds.
    made = torch.float32 if INTERPRETED and dtype is torch.bfloat16 else dtype
    out = torch.empty((count, width), dtype=made, device=ids.device)
    if not out.numel():
        return out.to(dtype)
    if isinstance(table, FragmentMatrix):
        _fragments(ids, table, out)
    else:
        _rows(ids, table, out)
    return out.to(dtype)


def _fragments(ids: Tensor, table: FragmentMatrix, out: Tensor) -> None:
    if table.paired:
        raise UnsupportedError("embed: the table has paired rows; keep it unpaired at load")
    groups = groups_of(table.shape[1])
    slice_units = table.words.shape[2] // 16
    launch(
        kernels.gather_fragments,
        (ids.shape[0], -(-groups // _BLOCKS)),
        ids,
        table.words.view(torch.int32),
        out,
        groups,
        table.shape[1],
        table.slices * slice_units,
        slice_units,
        BITS=table.entry.bits,
        SLICE=0 if table.slice_groups == groups else table.slice_groups,
        BLOCKS=_BLOCKS,
        num_warps=2,
    )


def _rows(ids: Tensor, table: Weight, out: Tensor) -> None:
    is_fp8 = isinstance(table, Fp8RowMatrix)
    if isinstance(table, Fp8RowMatrix):
        stored, scales = table.codes, table.scales
    elif isinstance(table, Tensor) and table.dtype in _TYPES and table.stride(1) == 1:
        stored, scales = table, None
    elif not isinstance(table, Tensor) and table.format == "NVFP4":
        # As the reference form: such a table cannot be read by row.
        raise ValueError("embed: a table in NVFP4 cannot be read by row")
    else:
        form = str(table.dtype) if isinstance(table, Tensor) else table.format
        raise UnsupportedError(
            f"embed: no Triton kernel for a table in {form} as it is; re-tile it at load with "
            "ninfer.ops.resident(table)"
        )
    launch(
        kernels.gather_rows,
        (ids.shape[0], -(-out.shape[1] // _COLUMNS)),
        ids,
        stored,
        scales,
        out,
        out.shape[1],
        stored.stride(0),
        IS_FP8=is_fp8,
        COLUMNS=_COLUMNS,
        num_warps=4,
    )
