"""The gated delta rule in its chunked form, for training: matrix products over chunks of 64.

The algebra is that of Yang et al., "Gated Delta Networks" (2024): inside a chunk a unit lower
triangular system is solved, between chunks one matrix [128, 128] carries the state.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK = 64


def gated_delta(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, write: Tensor) -> Tensor:
    """o[t] = q[t] S[t] / sqrt(D) with S[t] = e^decay S + k (write (v - k e^decay S)), float32.

    q, k, v are [B, T, H, D], decay (<= 0, a logarithm) and write are [B, T, H]; T is a multiple of
    64 and S starts at zero. Returns [B, T, H, D].
    """
    q, k, v = (_chunked(x) for x in (q * q.shape[-1] ** -0.5, k, v))  # [B, H, N, C, D]
    total = _chunked(decay).cumsum(-1)  # [B, H, N, C]
    beta = _chunked(write).unsqueeze(-1)
    causal = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    # Above the diagonal the exponent may overflow, so it is masked before, not after.
    between = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(~causal, -torch.inf).exp()
    system = beta * (k @ k.transpose(-1, -2)) * between
    solved = UnitInverse.apply(system.tril(-1))
    since, last = total.exp().unsqueeze(-1), total[..., -1:]
    update = solved @ (beta * v)  # [B, H, N, C, D]
    erased = solved @ (beta * since * k)
    kept = (k * (last - total).exp().unsqueeze(-1)).transpose(-1, -2)  # [B, H, N, D, C]
    eye = torch.eye(k.shape[-1], device=q.device)
    carry = last.exp().unsqueeze(-1) * eye - kept @ erased  # [B, H, N, D, D]
    states = _scan(carry, kept @ update)
    fresh = update - erased @ states
    out = (q * since) @ states + ((q @ k.transpose(-1, -2)) * between) @ fresh
    return out.flatten(2, 3).transpose(1, 2)


def _chunked(x: Tensor) -> Tensor:
    """[B, T, H, ...] -> [B, H, N, C, ...]."""
    return x.transpose(1, 2).unflatten(2, (-1, CHUNK))


def _scan(carry: Tensor, added: Tensor) -> Tensor:
    """States [B, H, N, D, D] before each chunk: S[n + 1] = carry[n] S[n] + added[n]."""
    shape = added.shape
    left, right = (x.flatten(0, 1).unbind(1) for x in (carry, added))
    state = torch.zeros_like(right[0])
    states = [state]
    for step, extra in zip(left[:-1], right[:-1], strict=True):
        state = torch.baddbmm(extra, step, state)
        states.append(state)
    return torch.stack(states, dim=1).view(shape)


class UnitInverse(torch.autograd.Function):
    """(I + A)^-1 for strictly lower triangular A [..., 64, 64].

    Blocks of 8 are inverted by a short product, then joined in pairs: that is forward substitution
    in blocks, whose intermediate values do not grow as those of one long product would.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        inverse = _inverse(a)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        turned = inverse.transpose(-1, -2)
        return -(turned @ grads[0] @ turned)


def _inverse(a: Tensor) -> Tensor:
    size = a.shape[-1]
    if size == 8:
        eye = torch.eye(8, dtype=a.dtype, device=a.device)
        square = a @ a
        return (eye - a) @ (eye + square) @ (eye + square @ square)
    half = size // 2
    corners = torch.stack([a[..., :half, :half], a[..., half:, half:]])
    first, last = _inverse(corners)
    below = -(last @ a[..., half:, :half] @ first)
    top = torch.cat([first, torch.zeros_like(first)], dim=-1)
    return torch.cat([top, torch.cat([below, last], dim=-1)], dim=-2)
