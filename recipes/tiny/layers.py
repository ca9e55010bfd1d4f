"""Layers of the demo models in plain PyTorch, parameters named as in Hugging Face checkpoints.

The formulas are those of docs/ops.md; here they are written over padded batches [B, T] and can be
differentiated. Padding stands on the right, where causal layers cannot see it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from recipes.tiny.documents import Documents, causal_attention
from recipes.tiny.fused import fused
from recipes.tiny.gated_delta import gated_delta, unchunked
from recipes.tiny.quantised import Rows, imitate
from recipes.tiny.short_convolution import short_convolution

EPS = 1e-6


@fused
def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x / rms(x) * (1 + weight) over the last dimension, in float32, back in x's dtype."""
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt() * (1 + weight)).to(x.dtype)


@fused
def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor) -> Tensor:
    """x / rms(x) * weight * silu(gate) over the last dimension, in float32, in gate's dtype."""
    wide = x.float()
    normed = wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight
    return (normed * functional.silu(gate.float())).to(gate.dtype)


@fused
def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return functional.silu(gate) * up


@fused
def shared_out(both: Tensor, share: Tensor) -> Tensor:
    """silu(gate) * up * share of the halves of `both` [..., E, 2 * I] and shares [..., E]."""
    gate, up = both.chunk(2, dim=-1)
    return functional.silu(gate) * up * share.unsqueeze(-1)


@fused
def sigmoid_mul(x: Tensor, gate: Tensor) -> Tensor:
    """x * sigmoid(gate)."""
    return x * torch.sigmoid(gate)


@fused
def placed(x: Tensor, weight: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Heads x [B, T, H, D] normed, then their first 2 * R dims turned, halves paired.

    Tables are [B, T, R]; the norm is that of `rms_norm`.
    """
    size = cosine.shape[-1]
    c, s = cosine.unsqueeze(2), sine.unsqueeze(2)
    wide = x.float()
    x = (wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt() * (1 + weight)).to(x.dtype)
    first, second = x[..., :size].float(), x[..., size : 2 * size].float()
    turned = torch.cat([first * c - second * s, second * c + first * s], dim=-1).to(x.dtype)
    return torch.cat([turned, x[..., 2 * size :]], dim=-1)


class Places(NamedTuple):
    """Where the tokens of a batch stand."""

    cosine: Tensor  # [B, T, pairs] of the rotary positions
    sine: Tensor
    documents: Documents


class Matrix(nn.Module):
    """A weight [rows, columns] without bias that can imitate its stored numeric format.

    `rows` says which rows will be stored in which format; None stays as it is.
    """

    def __init__(self, out: int, inner: int, rows: Sequence[Rows] | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, inner).normal_(std=inner**-0.5))
        self.rows = rows
        self.imitating = False

    def value(self) -> Tensor:
        """The weight, or what its stored form would give back."""
        return imitate(self.weight, self.rows) if self.imitating and self.rows else self.weight

    def forward(self, x: Tensor) -> Tensor:
        """x [..., columns] times the transposed weight."""
        return functional.linear(x, self.value().to(x.dtype))


class Weight(nn.Module):
    """A parameter that checkpoints know as the weight of a module: of a norm, a table, taps."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)


def norm(size: int, fill: float = 0.0) -> Weight:
    """A norm's weight, `.weight` [size]."""
    return Weight(torch.full((size,), fill))


class Attention(nn.Module):
    """Gated full attention with grouped queries and partial rotary positions."""

    def __init__(self, text: Mapping[str, Any], formats: Mapping[str, str]) -> None:
        super().__init__()
        self.heads, self.dim = text["num_attention_heads"], text["head_dim"]
        self.kv_heads, hidden = text["num_key_value_heads"], text["hidden_size"]
        query, kv = self.heads * self.dim, self.kv_heads * self.dim
        # Rows alternate by head: its query, then its gate.
        alternating = [
            Rows(self.dim, formats[part]) for _ in range(self.heads) for part in ("query", "gate")
        ]
        self.q_proj = Matrix(2 * query, hidden, alternating)
        self.k_proj = Matrix(kv, hidden, [Rows(kv, formats["key"])])
        self.v_proj = Matrix(kv, hidden, [Rows(kv, formats["value"])])
        self.o_proj = Matrix(hidden, query, [Rows(hidden, formats["attention_output"])])
        self.q_norm, self.k_norm = norm(self.dim), norm(self.dim)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """x [B, T, hidden] -> [B, T, hidden]."""
        cosine, sine = places.cosine, places.sine
        query, gate = self.q_proj(x).unflatten(-1, (self.heads, 2 * self.dim)).chunk(2, dim=-1)
        query = placed(query, self.q_norm.weight, cosine, sine)
        key = self.k_proj(x).unflatten(-1, (self.kv_heads, self.dim))
        key = placed(key, self.k_norm.weight, cosine, sine)
        value = self.v_proj(x).unflatten(-1, (self.kv_heads, self.dim))
        mixed = causal_attention(query, key, value, places.documents)
        return self.o_proj(sigmoid_mul(mixed, gate).flatten(2))


class GatedDeltaNet(nn.Module):
    """Gated DeltaNet: short convolution, delta rule with decay, gated norm."""

    def __init__(self, text: Mapping[str, Any], formats: Mapping[str, str]) -> None:
        super().__init__()
        self.keys, self.values = text["linear_num_key_heads"], text["linear_num_value_heads"]
        self.dim, hidden = text["linear_key_head_dim"], text["hidden_size"]
        key, value = self.keys * self.dim, self.values * self.dim
        parts = [
            Rows(key, formats["gdn_query"]),
            Rows(key, formats["gdn_key"]),
            Rows(value, formats["gdn_value"]),
        ]
        self.in_proj_qkv = Matrix(2 * key + value, hidden, parts)
        self.in_proj_z = Matrix(value, hidden, [Rows(value, formats["gdn_z"])])
        self.in_proj_a, self.in_proj_b = Matrix(self.values, hidden), Matrix(self.values, hidden)
        taps = torch.empty(2 * key + value, 1, text["linear_conv_kernel_dim"])
        self.conv1d = Weight(taps.uniform_(-0.5, 0.5))
        # Decays from about 0.2 to 0.999 a token, as the authors of Mamba 2 start them.
        step = torch.exp(torch.empty(self.values).uniform_(-6.9, -2.3))
        self.A_log = nn.Parameter(torch.empty(self.values).uniform_(1, 16).log())
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = norm(self.dim, 1.0)
        self.out_proj = Matrix(hidden, value, [Rows(hidden, formats["gdn_output"])])

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """x [B, T, hidden] -> [B, T, hidden]; T is a multiple of 64."""
        offsets = places.documents.offsets
        mixed = short_convolution(self.in_proj_qkv(x), self.conv1d.weight.squeeze(1), offsets)
        sizes = [self.keys * self.dim] * 2 + [self.values * self.dim]
        query, key, value = (p.unflatten(-1, (-1, self.dim)) for p in mixed.split(sizes, dim=-1))
        gates = (self.in_proj_a(x), self.in_proj_b(x), self.A_log, self.dt_bias)
        out = unchunked(gated_delta(query, key, value, *gates, offsets == 0), len(x))
        gate = self.in_proj_z(x).unflatten(-1, (self.values, self.dim))
        return self.out_proj(gated_rms_norm(out, gate, self.norm.weight).flatten(2))


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden: int, width: int, formats: Mapping[str, str], kind: str) -> None:
        super().__init__()
        self.gate_proj = Matrix(width, hidden, [Rows(width, formats[f"{kind}_gate_up"])])
        self.up_proj = Matrix(width, hidden, [Rows(width, formats[f"{kind}_gate_up"])])
        self.down_proj = Matrix(hidden, width, [Rows(hidden, formats[f"{kind}_down"])])

    def forward(self, x: Tensor) -> Tensor:
        """x [..., hidden] -> [..., hidden]."""
        return self.down_proj(silu_mul(self.gate_proj(x), self.up_proj(x)))


class SparseMoe(nn.Module):
    """Top-k experts and a shared one.

    All experts are computed for all tokens, and those that were not chosen get weight zero: at
    this size that is faster than gathering, and the sums are the same.
    """

    def __init__(self, text: Mapping[str, Any], formats: Mapping[str, str]) -> None:
        super().__init__()
        self.count, self.top_k = text["num_experts"], text["num_experts_per_tok"]
        hidden, width = text["hidden_size"], text["moe_intermediate_size"]
        self.gate = Matrix(self.count, hidden)
        self.experts = nn.Module()
        shapes = {"gate_up_proj": (2 * width, hidden), "down_proj": (hidden, width)}
        for name, shape in shapes.items():
            drawn = torch.empty(self.count, *shape).normal_(std=shape[1] ** -0.5)
            setattr(self.experts, name, nn.Parameter(drawn))
        self.formats = {name: formats[f"routed_{name[:-5]}"] for name in shapes}
        self.imitating = False
        self.shared_expert = Mlp(hidden, text["shared_expert_intermediate_size"], formats, "shared")
        self.shared_expert_gate = Matrix(1, hidden)
        self.balance: Tensor | None = None

    def _experts(self, name: str) -> Tensor:
        weight = getattr(self.experts, name)
        if not self.imitating:
            return weight
        flat = weight.flatten(0, 1)
        return imitate(flat, [Rows(flat.shape[0], self.formats[name])]).view_as(weight)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, hidden] -> the same; leaves the load-balancing loss of the call in `balance`."""
        logits = self.gate(x).float()  # [B, T, E]
        best = logits.topk(self.top_k, dim=-1)
        share = torch.zeros_like(logits).scatter(-1, best.indices, best.values.softmax(-1))
        chosen = (share > 0).float().mean((0, 1)) / self.top_k
        self.balance = self.count * (chosen * logits.softmax(-1).mean((0, 1))).sum()
        gate_up = self._experts("gate_up_proj").flatten(0, 1).to(x.dtype)  # [E * 2 * I, hidden]
        both = functional.linear(x, gate_up).unflatten(-1, (self.count, -1))
        inner = shared_out(both, share.to(x.dtype)).flatten(-2)
        down = self._experts("down_proj").transpose(0, 1).flatten(1).to(x.dtype)  # [hidden, E * I]
        shared = sigmoid_mul(self.shared_expert(x), self.shared_expert_gate(x))
        return functional.linear(inner, down) + shared
