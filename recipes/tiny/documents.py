"""Documents that share the rows of a batch, and attention that stays inside them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(slots=True)
class Documents:
    """How the B * T tokens of a batch divide into documents, each inside one row."""

    offsets: Tensor  # [B, T] int64, index of each token in its document
    starts: Tensor  # [D + 1] int32, first token of each among B * T, then B * T; may repeat


def causal_attention(q: Tensor, k: Tensor, v: Tensor, documents: Documents) -> Tensor:
    """Attention of q [B, T, H, D] to keys and values [B, T, K, D] of its document up to itself.

    Query head h reads head h // (H / K). Returns [B, T, H, D].
    """
    if q.is_cuda:
        share = q.shape[2] // k.shape[2]
        wide = (x.repeat_interleave(share, dim=2) for x in (k, v))
        parts = (x.flatten(0, 1).contiguous() for x in (q, *wide))
        out: Tensor = _FlashDocuments.apply(*parts, documents.starts, q.shape[1])
        return out.view_as(q)
    at = torch.arange(q.shape[1])
    begin = at - documents.offsets  # [B, T]
    mask = (at <= at[:, None]) & (begin.unsqueeze(1) == begin.unsqueeze(2))  # [B, T, T]
    return functional.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask.unsqueeze(1),
        enable_gqa=True,
    ).transpose(1, 2)


class _FlashDocuments(torch.autograd.Function):
    """FlashAttention over documents of different lengths; q, k, v are [B * T, H, D]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int) -> Tensor:
        given = (starts, starts, longest, longest, 0.0, True)
        out, sums, seed, unused, _ = torch.ops.aten._flash_attention_forward(q, k, v, *given, False)
        ctx.save_for_backward(q, k, v, out, sums, starts, seed, unused)
        ctx.longest = longest
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, sums, starts, seed, unused = ctx.saved_tensors
        given = (starts, starts, ctx.longest, ctx.longest, 0.0, True)
        found = torch.ops.aten._flash_attention_backward(
            grads[0].contiguous(), q, k, v, out, sums, *given, seed, unused
        )
        return (*found, None, None)
