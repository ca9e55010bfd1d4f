"""Choosing drafts by Triton kernels."""

from typing import Final

import torch
import triton
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.launch import launch
from ninfer.ops.sampling.portable import FLOATS, best_of
from ninfer.ops.selector import kernels

_CANDIDATES: Final = 16
_RANKS: Final = 128
# Scores of a row that one program holds.
_MOST_SCORES: Final = 4096


def indexed_argmax(logits: Tensor, ids: Tensor) -> Tensor:
    """See the contract."""
    ids = ids.contiguous()
    return best_of("indexed_argmax", logits, ids.shape[0], 1, ids=ids, mark=True)[1][:, 0]


def indexed_top(logits: Tensor, ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """See the contract."""
    ids = ids.contiguous()
    values, found = best_of("indexed_top", logits, ids.shape[0], count, ids=ids, mark=False)
    return values.to(logits.dtype), found


def edge_scores(
    logits: Tensor,
    ids: Tensor,
    previous: Tensor,
    gate: Tensor,
    predecessors: Tensor,
    successors: Tensor,
) -> Tensor:
    """See the contract."""
    for x in (logits, gate, predecessors, successors):
        if x.dtype not in FLOATS:
            raise UnsupportedError(f"edge_scores: no Triton kernel for {x.dtype}; use bf16")
    out = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    if out.numel():
        rows, count = logits.shape
        launch(
            kernels.score_edges,
            (-(-count // _CANDIDATES), rows),
            *(logits, logits.stride(0), ids.contiguous(), previous.contiguous()),
            *(gate, gate.stride(0), predecessors, predecessors.stride(0)),
            *(successors, successors.stride(0), out, count, gate.shape[1]),
            CANDIDATES=_CANDIDATES,
            RANKS=_RANKS,
        )
    return out


def tempered_softmax(scores: Tensor, temperature: Tensor) -> Tensor:
    """See the contract."""
    rows, count = scores.shape
    if scores.dtype not in FLOATS or count > _MOST_SCORES:
        raise UnsupportedError(
            f"tempered_softmax: no Triton kernel for {count} scores of {scores.dtype}; at most "
            f"{_MOST_SCORES} in bf16, float16 or float32"
        )
    out = torch.empty(scores.shape, dtype=torch.float32, device=scores.device)
    if out.numel():
        values = (scores, scores.stride(0), temperature.contiguous(), out, count)
        launch(kernels.soften, (rows,), *values, COUNT=triton.next_power_of_2(count), num_warps=1)
    return out
