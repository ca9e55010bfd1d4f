"""Grouping of many tokens by expert, on their device and without waiting for it."""

import torch
from torch import Tensor


def expert_spans(ids: Tensor, experts: int, length: int) -> tuple[Tensor, Tensor]:
    """Pairs sorted by expert, cut into spans of one expert and at most `length` pairs.

    For ids [T, k] of experts 0..experts - 1: (spans [3, S] int32 of expert, start and stop, order
    [T * k] int32). Span i are the pairs `order[start:stop]`, at most `length` from its start on;
    pairs of an expert keep their order. S is a bound that needs no values of ids, so spans at the
    end may be empty: their expert is -1.
    """
    flat = ids.flatten()
    ranked = torch.sort(flat, stable=True)
    every = torch.arange(experts + 1, device=ids.device)
    bounds = torch.searchsorted(ranked.values, every)  # [E + 1]
    used = (bounds.diff() + length - 1) // length
    ends = used.cumsum(0)
    item = torch.arange(flat.numel() // length + min(experts, flat.numel()), device=ids.device)
    expert = torch.searchsorted(ends, item, right=True)
    inside = expert.clamp_max(experts - 1)
    start = bounds[inside] + (item - ends[inside] + used[inside]) * length
    is_empty = expert == experts
    spans = torch.stack(
        (expert.masked_fill(is_empty, -1), start, bounds[inside + 1].masked_fill(is_empty, 0))
    )
    return spans.to(torch.int32), ranked.indices.to(torch.int32)
