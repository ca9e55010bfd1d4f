"""Attention of the vision tower by a Triton kernel."""

from math import log
from typing import Final

import torch
import triton.language as tl
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.attention.plan import head
from ninfer.ops.launch import INTERPRETED, launch
from ninfer.ops.vision import kernels

_TYPES: Final = (torch.bfloat16, torch.float16, torch.float32)
_LOG2_E: Final = 1 / log(2)
# Rows and keys of a tile.
_ROWS: Final = 64
_KEYS: Final = 64


def slice_attention(q: Tensor, k: Tensor, v: Tensor, *, length: int, scale: float) -> Tensor:
    """See the contract."""
    if q.dtype not in _TYPES:
        raise UnsupportedError(
            f"slice_attention: no Triton kernel for activations of {q.dtype}; use bf16"
        )
    # The interpreter cuts float32 down to bf16 where a card rounds.
    made = torch.float32 if INTERPRETED and q.dtype is torch.bfloat16 else q.dtype
    out = torch.empty(q.shape, dtype=made, device=q.device)
    if not out.numel():
        return out.to(q.dtype)
    count, heads, dim = q.shape
    wide = INTERPRETED or q.dtype is torch.float32
    operand = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
    shape = head(dim, 0, 32)
    rows, keys, stages = (16, 32, 1) if wide else (_ROWS, _KEYS, 2)
    launch(
        kernels.attend_slices,
        (-(-length // rows), count // length, heads),
        q,
        k,
        v,
        out,
        length,
        scale * _LOG2_E,
        *(stride for x in (q, k, v) for stride in x.stride()[:2]),
        R=rows,
        BN=keys,
        DIM=dim,
        W=shape.width,
        CHUNKS=shape.chunks,
        OPERAND=tl.float32 if wide else operand[q.dtype],
        STAGES=stages,
        num_warps=4,
        num_stages=stages,
        enable_fp_fusion=False,
    )
    return out.to(q.dtype)
