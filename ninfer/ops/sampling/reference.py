"""Sampling in plain torch; weights and their sums are float64."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ninfer.ops.exact import pointwise
from ninfer.ops.precision import wide
from ninfer.ops.sampling.choice import Lists, Settings, picked, ranked_lists
from ninfer.ops.sampling.ranking import best
from ninfer.ops.sampling.uniform import uniform
from ninfer.ops.tensors import (
    AllowedTokens,
    Candidates,
    DrawSettings,
    TokenBias,
    TokenPenalties,
)


def penalise(
    logits: Tensor,
    counts: Tensor,
    presence: Tensor,
    frequency: Tensor,
    repetition: Tensor | None = None,
) -> Tensor:
    """See the contract."""
    dtype = wide(logits)
    x, seen = logits.to(dtype), counts > 0
    if repetition is not None:
        factor = repetition.to(dtype).unsqueeze(1)
        x = torch.where(x > 0, x / factor, x * factor).where(seen, x)
    flat = seen.to(dtype) * presence.to(dtype).unsqueeze(1)
    return x - flat - counts.to(dtype) * frequency.to(dtype).unsqueeze(1)


def add_bias(logits: Tensor, rows: Tensor, ids: Tensor, values: Tensor) -> Tensor:
    """See the contract."""
    out = logits.to(wide(logits), copy=True)
    out[rows, ids] += values.to(out.dtype)
    return out


def mask(logits: Tensor, allowed: Tensor) -> Tensor:
    """See the contract."""
    shifts = torch.arange(32, dtype=torch.int32, device=logits.device)
    bits = (allowed.unsqueeze(-1) >> shifts & 1).flatten(1).to(torch.bool)[:, : logits.shape[1]]
    is_allowed = pad(bits, (0, logits.shape[1] - bits.shape[1]))
    return logits.masked_fill(~is_allowed, -torch.inf)


def finite_rows(logits: Tensor, limit: int) -> Tensor:
    """See the contract."""
    # The maximum is NaN if any entry is, and infinite for +inf and for all -inf.
    return torch.isfinite(logits[:, :limit].amax(-1))


def argmax(logits: Tensor, limit: int) -> Tensor:
    """See the contract."""
    first = logits[:, :limit].argmax(-1)  # of equal ones
    return first.where(finite_rows(logits, limit), -1)


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
    whole = torch.ones(logits.shape[0], dtype=torch.float64)
    lists = _lists(logits[:, :limit], temperature, top_k, top_p, min_p, whole)
    return Candidates(lists.ids, lists.weights)


def draw(choice: Candidates, u: Tensor) -> Tensor:
    """See the contract."""
    return _drawn(choice.ids, choice.weights, choice.weights.cumsum(-1)[:, -1], u)


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
    lists = _lists(logits[:, :limit], temperature, top_k, top_p, min_p, u)
    return _drawn(lists.ids, lists.weights, lists.mass, u)


def next_tokens(
    logits: Tensor,
    draws: DrawSettings,
    *,
    limit: int,
    bias: TokenBias | None = None,
    penalties: TokenPenalties | None = None,
    allowed: AllowedTokens | None = None,
) -> Tensor:
    """See the contract."""
    x = logits
    if bias is not None:
        rows, places = (bias.ids >= 0).nonzero(as_tuple=True)
        x = add_bias(x, rows, bias.ids[rows, places], bias.values[rows, places])
    if penalties is not None:
        x = _penalised(x, penalties)
    if allowed is not None:
        is_bound = (allowed.rows >= 0).unsqueeze(1)
        masks = allowed.masks[allowed.rows.clamp_min(0)]
        x = mask(x, masks).where(is_bound, x)
    return sample(
        x,
        limit=limit,
        temperature=draws.temperature,
        top_k=draws.top_k,
        top_p=draws.top_p,
        min_p=draws.min_p,
        u=uniforms(draws.seeds, draws.positions, draws.purposes),
    )


def uniforms(seeds: Tensor, positions: Tensor, purposes: Tensor) -> Tensor:
    """See the contract."""
    keys = zip(seeds.tolist(), positions.tolist(), purposes.tolist(), strict=True)
    return torch.tensor([uniform(*key) for key in keys], device=seeds.device)


def logprobs(logits: Tensor, ids: Tensor, limit: int) -> Tensor:
    """See the contract."""
    x = logits[:, :limit].to(wide(logits))
    top = x.amax(-1)
    # Row by row: a reduction over several rows at once may take another order.
    masses = [
        pointwise(torch.exp, line - best_of_row).sum(dtype=torch.float64)
        for line, best_of_row in zip(x, top, strict=True)
    ]
    mass = torch.stack(masses) if masses else top.to(torch.float64)
    logs = pointwise(torch.log, mass).to(x.dtype)
    return x.gather(1, ids) - top.unsqueeze(1) - logs.unsqueeze(1)


def top_logprobs(logits: Tensor, limit: int, n: int) -> tuple[Tensor, Tensor]:
    """See the contract."""
    ids = best(logits[:, :limit], n) if n else logits.new_zeros((logits.shape[0], 0)).long()
    values = logprobs(logits, ids, limit)
    usable = finite_rows(logits, limit).unsqueeze(1)
    return ids.where(usable, -1), values.where(usable, torch.nan)


def _penalised(logits: Tensor, penalties: TokenPenalties) -> Tensor:
    has_history = (penalties.rows >= 0).unsqueeze(1)
    counts = penalties.counts[penalties.rows.clamp_min(0)].long()  # [R, V]
    rows, places = (penalties.earlier >= 0).nonzero(as_tuple=True)
    ones = torch.ones_like(rows)
    counts.index_put_((rows, penalties.earlier[rows, places]), ones, accumulate=True)
    factors = (penalties.presence, penalties.frequency, penalties.repetition)
    x = penalise(logits, counts.where(has_history, 0), *factors)
    return x.where(has_history, logits.to(x.dtype))


def _drawn(ids: Tensor, weights: Tensor, mass: Tensor, u: Tensor) -> Tensor:
    running = weights.cumsum(-1)
    # A u just below 1 may round up to the whole mass, behind the last candidate.
    last = running[:, -1].nextafter(running.new_zeros(()))
    target = (u.to(mass) * mass).minimum(last).unsqueeze(1)
    index = (running <= target).sum(-1, keepdim=True)
    return ids.gather(1, index).squeeze(1)


def _lists(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, u: Tensor
) -> Lists:
    """Lists of all rows; those of one candidate, greedy or unusable, need no ranking."""
    heat, keep, nucleus, floor, place = (
        setting.to(logits.device) for setting in (temperature, top_k, top_p, min_p, u)
    )
    count, width = logits.shape
    single = argmax(logits, width)
    lists = Lists(
        single.unsqueeze(1),
        torch.ones((count, 1), dtype=torch.float64, device=logits.device),
        torch.ones(count, dtype=torch.float64, device=logits.device),
    )
    rows = ((single >= 0) & (heat > 0)).nonzero().flatten()
    if not rows.numel():
        return lists
    settings = Settings(
        temperature=heat.to(torch.float64),
        top_k=keep.to(torch.int64).where((keep > 0) & (keep < width), width),
        top_p=nucleus.to(torch.float64),
        min_p=floor.to(torch.float64),
        u=place.to(torch.float64),
    )
    ranked = ranked_lists(picked(logits, rows).to(wide(logits)), settings.of(rows))
    return lists.with_rows(rows, ranked)
