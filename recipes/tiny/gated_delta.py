"""The gated delta rule in its chunked form, for training: matrix products over chunks of 64.

The algebra is that of Yang et al., "Gated Delta Networks" (2024): inside a chunk a unit lower
triangular system is solved, and a state [D, D] goes from chunk to chunk. Matrix products run in the
dtype of the inputs; decays, systems and states are float32.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from recipes.tiny.fused import fused

CHUNK = 64
_BASE = 8
_EPS = 1e-6
# Nothing is left of a state that fades by e^-30; sums of many stay exact enough in float32.
_FORGET = 30.0


def gated_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    rate: Tensor,
    bias: Tensor,
    first: Tensor,
) -> Tensor:
    """o[t] = q[t] S[t] / sqrt(D), S[t] = e^g S + k (beta (v - k e^g S)), in the dtype of v.

    q, k [B, T, K, D] are brought to length one; v is [B, T, H, D] with H a multiple of K: value
    head h reads key head h // (H / K). g = -exp(rate) softplus(a + bias) and beta = sigmoid(b) are
    of a, b [B, T, H] and rate, bias [H]. T is a multiple of 64; S starts at zero, and again where
    `first` [B, T] is true. Returns [N, B * H, 64, D] for N chunks: see `unchunked`.
    """
    q, k, v, total, beta, within = _prepared(q, k, v, a, b, rate, bias, first)
    solved = UnitInverse.apply(_system(k @ k.transpose(-1, -2), within, beta)).to(v.dtype)
    right, kept, scaled = _scaled(q, k, v, beta, total)
    update, erased = (solved @ right).chunk(2, dim=-1)
    states, fresh = _Scan.apply(update, erased, kept, total[..., -1].exp())
    near = _weighted(q @ k.transpose(-1, -2), within, q.shape[-1] ** -0.5) @ fresh
    return torch.baddbmm(near.flatten(0, 1), scaled.flatten(0, 1), states.flatten(0, 1)).view_as(
        near
    )


def unchunked(out: Tensor, batch: int) -> Tensor:
    """[N, B * H, C, D] -> [B, N * C, H, D]."""
    return out.unflatten(1, (batch, -1)).permute(1, 0, 3, 2, 4).flatten(1, 2)


def _chunks(x: Tensor, share: int = 1) -> Tensor:
    """[B, T, K, ...] -> [N, B * K * share, C, ...], each head `share` times."""
    split = x.unflatten(1, (-1, CHUNK)).movedim(1, 0).transpose(2, 3)  # [N, B, K, C, ...]
    if share > 1:
        split = split.unsqueeze(3).expand(-1, -1, -1, share, -1, -1).flatten(2, 3)
    return split.flatten(1, 2)


@fused
def _prepared(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    rate: Tensor,
    bias: Tensor,
    first: Tensor,
) -> tuple[Tensor, ...]:
    """q, k, v [N, G, C, D]; sums of g inside chunks and beta [N, G, C]; decays [N, G, C, C]."""
    share = v.shape[2] // k.shape[2]
    q, k = ((x.float() * _inverse_length(x)).to(v.dtype) for x in (q, k))
    decay = -rate.exp() * functional.softplus(a.float() + bias)
    decay = torch.where(first.unsqueeze(-1), decay - _FORGET, decay)
    total = _chunks(decay).cumsum(-1)
    at = torch.arange(CHUNK, device=v.device)
    gap = total.unsqueeze(-1) - total.unsqueeze(-2)
    # Masked before the exponential, which may overflow above the diagonal.
    within = torch.where(at[:, None] >= at[None, :], gap, -torch.inf).exp()
    return (
        _chunks(q, share).contiguous(),
        _chunks(k, share).contiguous(),
        _chunks(v).contiguous(),
        total,
        _chunks(torch.sigmoid(b.float())).contiguous(),
        within,
    )


def _inverse_length(x: Tensor) -> Tensor:
    return (x.float().square().sum(-1, keepdim=True) + _EPS).rsqrt()


@fused
def _system(products: Tensor, within: Tensor, beta: Tensor) -> Tensor:
    """The strictly lower part of beta[t] (k[t] k[s]) exp(G[t] - G[s]), float32."""
    at = torch.arange(CHUNK, device=products.device)
    return torch.where(
        at[:, None] > at[None, :], products.float() * within * beta.unsqueeze(-1), 0.0
    )


@fused
def _scaled(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, total: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """[beta v, beta exp(G) k], exp(G[last] - G) k, exp(G) q / sqrt(D); all in v's dtype."""
    since = total.exp().unsqueeze(-1)
    rows = beta.unsqueeze(-1)
    right = torch.cat(
        [(v.float() * rows).to(v.dtype), (k.float() * (rows * since)).to(v.dtype)], dim=-1
    )
    kept = (k.float() * (total[..., -1:] - total).exp().unsqueeze(-1)).to(v.dtype)
    return right, kept, (q.float() * (since * q.shape[-1] ** -0.5)).to(v.dtype)


@fused
def _weighted(products: Tensor, within: Tensor, scale: float) -> Tensor:
    """q[t] k[s] exp(G[t] - G[s]) times `scale`."""
    return (products.float() * within * scale).to(products.dtype)


class _Scan(torch.autograd.Function):
    """States [N, G, D, D] before each chunk and written values [N, G, C, D] of each.

    Written out because autograd would keep and add up many small matrices for every chunk.
    """

    @staticmethod
    def forward(
        ctx: Any, update: Tensor, erased: Tensor, kept: Tensor, last: Tensor
    ) -> tuple[Tensor, Tensor]:
        count, groups, _, dim = update.shape
        state = torch.zeros(groups, dim, dim, device=update.device)
        before = state.to(update.dtype)
        states, fresh = [], []
        for i in range(count):
            states.append(before)
            fresh.append(torch.baddbmm(update[i], erased[i], before, alpha=-1))
            added = torch.bmm(kept[i].transpose(1, 2), fresh[i])
            state, before = _carried(added, state, last[i])
        found = torch.stack(states), torch.stack(fresh)
        ctx.save_for_backward(erased, kept, last, *found)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        erased, kept, last, states, fresh = ctx.saved_tensors
        to_states, to_fresh = grads
        state = torch.zeros_like(states[0], dtype=torch.float32)
        after = state.to(states.dtype)
        afters, written = [], []
        for i in reversed(range(len(states))):
            afters.append(after)
            written.append(torch.baddbmm(to_fresh[i], kept[i], after))
            added = torch.baddbmm(to_states[i], erased[i].transpose(1, 2), written[-1], alpha=-1)
            state, after = _carried(added, state, last[i])
        after, to_update = torch.stack(afters[::-1]), torch.stack(written[::-1])
        to_erased = -(to_update @ states.transpose(-1, -2))
        return to_update, to_erased, fresh @ after.transpose(-1, -2), _overlap(after, states)


@fused
def _carried(added: Tensor, state: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """added + factor * state, in float32 and in the dtype of `added`; factor [G]."""
    new = added.float() + state * factor[:, None, None]
    return new, new.to(added.dtype)


@fused
def _overlap(a: Tensor, b: Tensor) -> Tensor:
    """Sums of a * b [..., D, D] over each matrix, in float32."""
    return (a.float() * b.float()).sum((-1, -2))


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
