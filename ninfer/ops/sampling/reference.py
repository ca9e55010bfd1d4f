"""Sampling in plain torch, row by row; weights and their sums are float64."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ninfer.ops.precision import wide
from ninfer.ops.tensors import Candidates


def penalise(logits: Tensor, counts: Tensor, presence: Tensor, frequency: Tensor) -> Tensor:
    """See the contract."""
    dtype = wide(logits)
    flat = (counts > 0).to(dtype) * presence.to(dtype).unsqueeze(1)
    return logits.to(dtype) - flat - counts.to(dtype) * frequency.to(dtype).unsqueeze(1)


def finite_rows(logits: Tensor, limit: int) -> Tensor:
    """See the contract."""
    # The maximum is NaN if any entry is, and infinite for +inf and for all -inf.
    return torch.isfinite(logits[:, :limit].amax(-1))


def argmax(logits: Tensor, limit: int) -> Tensor:
    """See the contract."""
    best = logits[:, :limit].argmax(-1)  # the first of equal ones
    return best.where(finite_rows(logits, limit), -1)


def candidates(
    logits: Tensor,
    *,
    limit: int,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
) -> Candidates:
    """See the contract."""
    rows = zip(
        logits[:, :limit].to(wide(logits)),
        finite_rows(logits, limit).tolist(),
        temperature.tolist(),
        top_k.tolist(),
        top_p.tolist(),
        min_p.tolist(),
        strict=True,
    )
    ids, weights = [], []
    for row, finite, heat, keep, nucleus, floor in rows:
        if not finite:
            best = torch.full((1,), -1, device=row.device)
        elif heat <= 0:
            best = row.argmax().unsqueeze(0)
        else:
            best = _ranked(row, keep)
        if finite and heat > 0:
            weight = _cut(row[best].to(torch.float64), heat, nucleus, floor)
        else:
            weight = torch.ones(1, dtype=torch.float64, device=row.device)
        ids.append(best[: weight.shape[0]])
        weights.append(weight)
    return Candidates(
        ids=pad_sequence(ids, batch_first=True), weights=pad_sequence(weights, batch_first=True)
    )


def draw(choice: Candidates, u: Tensor) -> Tensor:
    """See the contract."""
    running = choice.weights.cumsum(-1)
    target = u.to(torch.float64).unsqueeze(1) * running[:, -1:]
    index = (running <= target).sum(-1, keepdim=True)
    return choice.ids.gather(1, index).squeeze(1)


def sample(
    logits: Tensor,
    *,
    limit: int,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    u: Tensor,
) -> Tensor:
    """See the contract."""
    choice = candidates(
        logits, limit=limit, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
    )
    return draw(choice, u)


def logprobs(logits: Tensor, ids: Tensor, limit: int) -> Tensor:
    """See the contract."""
    x = logits[:, :limit].to(wide(logits))
    return x.gather(1, ids) - x.logsumexp(-1, keepdim=True)


def _ranked(row: Tensor, keep: int) -> Tensor:
    """Ids of the `keep` largest entries (0: all), lower id first on ties."""
    if keep <= 0 or keep >= row.shape[0]:
        return row.sort(descending=True, stable=True).indices
    # Everything that reaches the keep-th value, in id order: a full sort is slow for a vocabulary.
    bound = row.topk(keep).values[-1]
    ids = (row >= bound).nonzero().squeeze(1)
    return ids[row[ids].sort(descending=True, stable=True).indices[:keep]]


def _cut(x: Tensor, temperature: float, top_p: float, min_p: float) -> Tensor:
    """Weights of the candidates that stay, from their descending logits."""
    weights = ((x - x[0]) / temperature).exp_()
    count = int((weights >= min_p).sum())
    if top_p < 1:
        running = weights.cumsum(0)
        count = min(count, int((running < top_p * running[-1]).sum()) + 1)
    return weights[:count]
