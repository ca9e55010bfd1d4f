"""Choosing drafts in plain torch."""

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.precision import wide
from ninfer.ops.weights import gather_rows


def indexed_argmax(logits: Tensor, ids: Tensor) -> Tensor:
    """See the contract."""
    known = logits[:, : ids.shape[0]]
    best = known.amax(-1, keepdim=True)
    lowest = ids.where(known == best, torch.iinfo(torch.int64).max).amin(-1)
    return lowest.where(torch.isfinite(best.squeeze(1)), -1)


def indexed_top(logits: Tensor, ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """See the contract."""
    known = logits[:, : ids.shape[0]].nan_to_num(-torch.inf, torch.inf, -torch.inf)
    bounds = known.topk(count).values[:, -1:]
    columns = [_ranked(row, ids, bound, count) for row, bound in zip(known, bounds, strict=True)]
    if not columns:
        empty = ids.new_empty(0, count)
        return known.gather(1, empty), empty
    index = torch.stack(columns)
    return known.gather(1, index), ids[index]


def edge_scores(
    logits: Tensor,
    ids: Tensor,
    previous: Tensor,
    gate: Tensor,
    predecessors: Tensor,
    successors: Tensor,
) -> Tensor:
    """See the contract."""
    dtype = wide(logits)
    before = gather_rows(predecessors, previous, dtype) * gate.to(dtype)  # [R, r]
    after = gather_rows(successors, ids.flatten(), dtype).unflatten(0, ids.shape)  # [R, C, r]
    return torch.bmm(after, before.unsqueeze(-1)).squeeze(-1) + logits.to(dtype)


def tempered_softmax(scores: Tensor, temperature: Tensor) -> Tensor:
    """See the contract."""
    dtype = wide(scores)
    x, heat = scores.to(dtype), temperature.to(dtype).unsqueeze(1)
    best = functional.one_hot(x.argmax(-1), x.shape[1]).to(dtype)
    # The largest score becomes 0 first, so that a tiny temperature cannot overflow.
    spread = (x - x.amax(-1, keepdim=True)) / heat.where(heat > 0, 1)
    return spread.softmax(-1).where(heat > 0, best)


def _ranked(row: Tensor, ids: Tensor, bound: Tensor, count: int) -> Tensor:
    """Columns of the `count` largest entries, given the smallest of them; lower id first on ties.

    Only the entries that reach the bound are sorted: a full sort is slow for a vocabulary.
    """
    columns = (row >= bound).nonzero().squeeze(1)
    columns = columns[ids[columns].argsort()]
    return columns[row[columns].argsort(descending=True, stable=True)][:count]
