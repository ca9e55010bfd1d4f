"""The DFlash drafter of `tiny-moe` in plain PyTorch; its formulas are those of docs/ops.md."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from recipes.tiny.fused import fused
from recipes.tiny.layers import EPS, Matrix, Mlp, Weight, norm
from recipes.tiny.quantised import Rows

_FORMAT = "W8G32_F16S"


@fused
def plain_rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x / rms(x) * weight, in float32, back in x's dtype."""
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight).to(x.dtype)


def _turn(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotate whole heads x [B, T, H, D] by scalar positions [B, T]."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, device=x.device) / half)
    angle = (positions.float().unsqueeze(-1) * frequency).unsqueeze(2)
    first, second = x.float().chunk(2, dim=-1)
    c, s = angle.cos(), angle.sin()
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1).to(x.dtype)


class _Projections(nn.Module):
    q_proj: Matrix
    k_proj: Matrix
    v_proj: Matrix
    o_proj: Matrix
    q_norm: Weight
    k_norm: Weight


class DrafterLayer(nn.Module):
    """Attention of a block over context and block, and a SwiGLU MLP."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, dim = sizes["hidden_size"], sizes["head_dim"]
        self.heads, self.kv_heads = sizes["num_attention_heads"], sizes["num_key_value_heads"]
        self.theta = sizes["rope_theta"]
        self.input_layernorm = norm(hidden, 1.0)
        self.post_attention_layernorm = norm(hidden, 1.0)
        self.self_attn = _Projections()
        query, kv = self.heads * dim, self.kv_heads * dim
        for name, rows, columns in (
            ("q_proj", query, hidden),
            ("k_proj", kv, hidden),
            ("v_proj", kv, hidden),
            ("o_proj", hidden, query),
        ):
            setattr(self.self_attn, name, Matrix(rows, columns, [Rows(rows, _FORMAT)]))
        self.self_attn.q_norm, self.self_attn.k_norm = norm(dim, 1.0), norm(dim, 1.0)
        formats = {"mlp_gate_up": _FORMAT, "mlp_down": _FORMAT}
        self.mlp = Mlp(hidden, sizes["intermediate_size"], formats, "mlp")

    def _key_value(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        key = self.self_attn.k_proj(x).unflatten(-1, (self.kv_heads, -1))
        key = _turn(plain_rms_norm(key, self.self_attn.k_norm.weight), positions, self.theta)
        return key, self.self_attn.v_proj(x).unflatten(-1, (self.kv_heads, -1))

    def forward(
        self, x: Tensor, places: Tensor, context: Tensor, at: Tensor, mask: Tensor
    ) -> Tensor:
        """Block rows x [B, Q, hidden] at `places` [B, Q] over context [B, T, hidden] at `at`.

        `mask` [B, 1, Q, T + Q] is True where a row may look.
        """
        h = plain_rms_norm(x, self.input_layernorm.weight)
        query = self.self_attn.q_proj(h).unflatten(-1, (self.heads, -1))
        query = _turn(plain_rms_norm(query, self.self_attn.q_norm.weight), places, self.theta)
        seen, own = self._key_value(context, at), self._key_value(h, places)
        key, value = (torch.cat(pair, dim=1) for pair in zip(seen, own, strict=True))
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=mask,
            enable_gqa=True,
        )
        x = x + self.self_attn.o_proj(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(plain_rms_norm(x, self.post_attention_layernorm.weight))


class Drafter(nn.Module):
    """Taps of the target to a context, then a block of an anchor and masks over it."""

    def __init__(self, sizes: Mapping[str, Any]) -> None:
        super().__init__()
        self.sizes = sizes
        hidden, taps = sizes["hidden_size"], len(sizes["target_layer_ids"])
        self.fc = Matrix(hidden, taps * hidden, [Rows(hidden, _FORMAT)])
        self.hidden_norm, self.norm = norm(hidden, 1.0), norm(hidden, 1.0)
        self.layers = nn.ModuleList(DrafterLayer(sizes) for _ in range(sizes["num_hidden_layers"]))

    def imitate_storage(self, on: bool) -> None:
        """Compute with the values that the artifact will hold, or with the plain weights again."""
        for module in self.modules():
            if isinstance(module, Matrix):
                module.imitating = on

    def forward(self, taps: list[Tensor], embedded: Tensor, anchors: Tensor) -> Tensor:
        """States [B, A, K, hidden] of the masks behind each anchor.

        `taps` are streams [B, T, hidden] of the target's layers, `anchors` [B, A] positions of the
        tokens that are known last, `embedded` [B, A, 1 + K, hidden] the rows of anchor and masks.
        An anchor's own place is not in its context: the target has not processed it yet.
        """
        batch, count, size, hidden = embedded.shape
        length = taps[0].shape[1]
        device = embedded.device
        context = plain_rms_norm(self.fc(torch.cat(taps, -1)), self.hidden_norm.weight)
        at = torch.arange(length, device=device).expand(batch, -1)
        places = anchors.unsqueeze(-1) + torch.arange(size, device=device)  # [B, A, 1 + K]
        known = at[:, None, :] < anchors.unsqueeze(-1)  # [B, A, T]
        known = known.repeat_interleave(size, dim=1)  # [B, Q, T]
        block = torch.arange(count * size, device=device) // size
        own = (block[:, None] == block[None, :]).expand(batch, -1, -1)
        rows = places.flatten(1)
        near = (rows.unsqueeze(-1) - at.unsqueeze(1)).abs() < self.sizes["sliding_window"]
        x = embedded.flatten(1, 2)
        for index, layer in enumerate(self.layers):
            is_last = index == len(self.layers) - 1
            mask = torch.cat([known if is_last else known & near, own], dim=-1).unsqueeze(1)
            x = layer(x, rows, context, at, mask)
        return plain_rms_norm(x, self.norm.weight).view(batch, count, size, hidden)[:, :, 1:]
