"""A round of drafts in plain torch."""

from itertools import pairwise

import torch
from torch import Tensor

from ninfer.ops.tensors import BlockRows


def accept_drafts(tokens: Tensor, drafts: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """See the contract."""
    counts, newest = [], []
    bounds = offsets.tolist()
    for start, stop in pairwise(bounds):
        is_wrong = tokens[start:stop] != drafts[start:stop]
        is_wrong[-1:] = True
        count = int(is_wrong.int().argmax()) + 1 if start < stop else 0
        counts.append(count)
        newest.append(int(tokens[start + count - 1]) if count else -1)
    return offsets.new_tensor(counts), offsets.new_tensor(newest)


def block_rows(
    anchors: Tensor, drafts: Tensor, frontiers: Tensor, page_table: Tensor, page_size: int
) -> BlockRows:
    """See the contract."""
    tokens = torch.cat((anchors.unsqueeze(1), drafts), 1).clamp_min(0)  # [B, W]
    width = tokens.shape[1]
    positions = frontiers.unsqueeze(1) + torch.arange(width, device=anchors.device)
    pages = page_table.gather(1, positions.div(page_size, rounding_mode="floor"))
    slots = pages * page_size + positions % page_size
    return BlockRows(tokens.flatten(), positions.flatten(), slots.flatten(), frontiers + width)
