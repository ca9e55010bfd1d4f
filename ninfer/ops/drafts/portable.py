"""A round of drafts by Triton kernels."""

from typing import Final

import torch
import triton
from torch import Tensor

from ninfer.ops.drafts import kernels
from ninfer.ops.launch import launch
from ninfer.ops.tensors import BlockRows

_ROWS: Final = 64


def accept_drafts(tokens: Tensor, drafts: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """See the contract."""
    counts = torch.empty(offsets.shape[0] - 1, dtype=torch.int64, device=offsets.device)
    newest = torch.empty_like(counts)
    if counts.numel():
        values = (tokens.contiguous(), drafts.contiguous(), offsets.contiguous(), counts, newest)
        launch(kernels.count_right, (counts.shape[0],), *values, ROWS=_ROWS, num_warps=1)
    return counts, newest


def block_rows(
    anchors: Tensor, drafts: Tensor, frontiers: Tensor, page_table: Tensor, page_size: int
) -> BlockRows:
    """See the contract."""
    count, width = anchors.shape[0], drafts.shape[1] + 1
    tokens = torch.empty(count * width, dtype=torch.int64, device=anchors.device)
    rows = BlockRows(
        tokens, torch.empty_like(tokens), torch.empty_like(tokens), torch.empty_like(frontiers)
    )
    if count:
        launch(
            kernels.lay_out_blocks,
            (count,),
            *(anchors.contiguous(), drafts.contiguous(), frontiers.contiguous()),
            *(page_table.contiguous(), page_table.shape[1]),
            *(rows.tokens, rows.positions, rows.kv_slots, rows.kv_lengths, width),
            PAGE=page_size,
            WIDTH=triton.next_power_of_2(width),
            num_warps=1,
        )
    return rows
