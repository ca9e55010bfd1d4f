"""The gated delta rule in its chunked form, for training: matrix products over chunks of 64.

The algebra is that of Yang et al., "Gated Delta Networks" (2024): inside a chunk a unit lower
triangular system is solved, and a state [D, D] goes from chunk to chunk. Matrix products run in the
dtype of the inputs; decays, systems and states are float32.
"""

from typing import Any

import torch
from torch import Tensor

from recipes.tiny.fused import fused

CHUNK = 64
_BASE = 8


def gated_delta(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, write: Tensor) -> Tensor:
    """o[t] = q[t] S[t] / sqrt(D) with S[t] = e^decay S + k (write (v - k e^decay S)).

    q, k are [B, T, K, D], v is [B, T, H, D] with H a multiple of K: value head h reads key head
    h // (H / K). decay (<= 0, a logarithm) and write are float32 [B, T, H]; T is a multiple of 64
    and S starts at zero. Returns [B, T, H, D] in the dtype of v.
    """
    share = v.shape[2] // k.shape[2]
    total, beta = _chunk_gates(decay, write)  # [N, G, C], G = B * H
    q, k, v = _chunked(q, share), _chunked(k, share), _chunked(v, 1)  # [N, G, C, D]
    within = _decays(total)  # [N, G, C, C]
    solved = UnitInverse.apply(_system(k @ k.transpose(-1, -2), within, beta)).to(v.dtype)
    right = _right_sides(k, v, beta, total)  # [N, G, C, 2 D]
    update, erased = (solved @ right).chunk(2, dim=-1)
    states, fresh = _scan(update, erased, _kept(k, total), total[..., -1].exp())
    seen = _scaled_rows(q, total) @ states
    near = _weighted(q @ k.transpose(-1, -2), within, q.shape[-1] ** -0.5) @ fresh
    return _joined(seen, near, decay.shape[0])


@fused
def _chunk_gates(decay: Tensor, write: Tensor) -> tuple[Tensor, Tensor]:
    """Running sums of `decay` inside chunks, and `write`: [B, T, H] -> [N, B * H, C]."""
    parts = [x.unflatten(1, (-1, CHUNK)).permute(1, 0, 3, 2).flatten(1, 2) for x in (decay, write)]
    return parts[0].cumsum(-1), parts[1].contiguous()


@fused
def _chunked(x: Tensor, share: int) -> Tensor:
    """[B, T, K, D] -> [N, B * K * share, C, D], contiguous, each head `share` times."""
    split = x.unflatten(1, (-1, CHUNK)).permute(1, 0, 3, 2, 4)  # [N, B, K, C, D]
    if share > 1:
        split = split.unsqueeze(3).expand(-1, -1, -1, share, -1, -1).flatten(2, 3)
    return split.flatten(1, 2).contiguous()


@fused
def _decays(total: Tensor) -> Tensor:
    """exp(G[t] - G[s]) for s <= t, else 0. Masked before the exponential, which may overflow."""
    at = torch.arange(CHUNK, device=total.device)
    gap = total.unsqueeze(-1) - total.unsqueeze(-2)
    return torch.where(at[:, None] >= at[None, :], gap, -torch.inf).exp()


@fused
def _system(products: Tensor, within: Tensor, beta: Tensor) -> Tensor:
    """The strictly lower part of beta[t] (k[t] k[s]) exp(G[t] - G[s]), float32."""
    at = torch.arange(CHUNK, device=products.device)
    return torch.where(
        at[:, None] > at[None, :], products.float() * within * beta.unsqueeze(-1), 0.0
    )


@fused
def _right_sides(k: Tensor, v: Tensor, beta: Tensor, total: Tensor) -> Tensor:
    """beta v beside beta exp(G) k, in v's dtype."""
    rows = beta.unsqueeze(-1)
    since = (beta * total.exp()).unsqueeze(-1)
    return torch.cat([(v.float() * rows).to(v.dtype), (k.float() * since).to(v.dtype)], dim=-1)


@fused
def _kept(k: Tensor, total: Tensor) -> Tensor:
    """exp(G[last] - G[t]) k[t]."""
    return (k.float() * (total[..., -1:] - total).exp().unsqueeze(-1)).to(k.dtype)


@fused
def _scaled_rows(q: Tensor, total: Tensor) -> Tensor:
    """exp(G[t]) q[t] / sqrt(D)."""
    return (q.float() * (q.shape[-1] ** -0.5 * total.exp()).unsqueeze(-1)).to(q.dtype)


@fused
def _weighted(products: Tensor, within: Tensor, scale: float) -> Tensor:
    """q[t] k[s] exp(G[t] - G[s]) / sqrt(D)."""
    return (products.float() * within * scale).to(products.dtype)


@fused
def _joined(seen: Tensor, near: Tensor, batch: int) -> Tensor:
    """The sum of both parts, [N, B * H, C, D] -> [B, T, H, D]."""
    both = (seen + near).unflatten(1, (batch, -1)).permute(1, 0, 3, 2, 4)
    return both.flatten(1, 2).contiguous()


def _scan(update: Tensor, erased: Tensor, kept: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """States [N, G, D, D] before each chunk and written values [N, G, C, D] of each."""
    groups, dim = update.shape[1], update.shape[3]
    state = torch.zeros(groups, dim, dim, device=update.device)
    states, fresh = [], []
    for up, out, keep, factor in zip(*(x.unbind(0) for x in (update, erased, kept, last))):  # noqa: B905
        before = state.to(update.dtype)
        written = torch.baddbmm(up, out, before, alpha=-1)
        state = torch.addcmul(
            torch.bmm(keep.transpose(1, 2), written).float(), state, factor[:, None, None]
        )
        states.append(before)
        fresh.append(written)
    return torch.stack(states), torch.stack(fresh)


class UnitInverse(torch.autograd.Function):
    """(I + A)^-1 for strictly lower triangular A [..., 64, 64].

    Blocks of 8 are inverted by a short product, then joined in pairs: that is forward substitution
    in blocks, whose intermediate values do not grow as those of one long product would.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        inverse = torch.zeros_like(a)
        eye = torch.eye(_BASE, dtype=a.dtype, device=a.device)
        block = _diagonal(a, _BASE)
        square = block @ block
        _diagonal(inverse, _BASE).copy_((eye - block) @ (eye + square) @ (eye + square @ square))
        size = 2 * _BASE
        while size <= a.shape[-1]:
            half = size // 2
            given, found = _diagonal(a, size), _diagonal(inverse, size)
            below = found[..., half:, half:] @ given[..., half:, :half] @ found[..., :half, :half]
            found[..., half:, :half] = -below
            size *= 2
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        turned = inverse.transpose(-1, -2)
        return -(turned @ grads[0] @ turned)


def _diagonal(matrix: Tensor, size: int) -> Tensor:
    """View of the diagonal blocks [..., M / size, size, size] of matrices [..., M, M]."""
    split = matrix.unflatten(-1, (-1, size)).unflatten(-3, (-1, size))  # [..., b, size, b, size]
    return split.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
