"""Gated full-attention mixer of a decoder layer."""

from torch import Tensor

from ninfer import ops
from ninfer.models.config import AttentionSizes, TextConfig
from ninfer.models.forward_batch import ForwardBatch
from ninfer.models.qwen3_6.projection import project
from ninfer.models.qwen3_6.weights import AttentionWeights
from ninfer.ops.tensors import PagedKV


def attention_mixer(
    h: Tensor, weights: AttentionWeights, text: TextConfig, batch: ForwardBatch, cache: PagedKV
) -> Tensor:
    """Gated grouped-query attention of h [T, hidden]; writes this pass's keys and values.

    Queries and keys get a per-head norm before rotation; the result is multiplied by the sigmoid
    of a gate that is neither normed nor rotated. The cache holds rotated keys.
    """
    sizes = text.attention
    parts = project(h, weights.projections)
    query = parts["query"].unflatten(-1, (sizes.query_heads, sizes.head_dim))  # [T, Hq, D]
    key = parts["key"].unflatten(-1, (sizes.kv_heads, sizes.head_dim))  # [T, Hkv, D]
    value = parts["value"].unflatten(-1, (sizes.kv_heads, sizes.head_dim))  # [T, Hkv, D]
    query = ops.rmsnorm(query, weights.query_norm, eps=text.eps, unit_offset=True)
    key = ops.rmsnorm(key, weights.key_norm, eps=text.eps, unit_offset=True)
    query, key = _rotated(query, sizes, batch), _rotated(key, sizes, batch)
    ops.write_kv(key, value, cache, batch.kv_slots)
    mixed = ops.paged_attention(query, cache, batch.rows, scale=sizes.scale)  # [T, Hq, D]
    gated = ops.sigmoid_mul(mixed.flatten(-2), parts["gate"])  # [T, query_width]
    return ops.linear(gated, weights.output)


def _rotated(heads: Tensor, sizes: AttentionSizes, batch: ForwardBatch) -> Tensor:
    return ops.mrope(
        heads,
        batch.positions,
        theta=sizes.rope_theta,
        rotary_dim=sizes.rotary_dim,
        factor=sizes.rope_factor,
        native=sizes.native,
    )
