"""Gated DeltaNet mixer of a decoder layer."""

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.config import TextConfig
from ninfer.models.forward_batch import ForwardBatch, GdnState
from ninfer.models.qwen3_6.projection import project
from ninfer.models.qwen3_6.weights import GdnWeights

# Inside the square root of the per-head length, fixed by the model, not the norms' epsilon.
L2_EPS = 1e-6


def gdn_mixer(
    h: Tensor, weights: GdnWeights, text: TextConfig, batch: ForwardBatch, state: GdnState
) -> Tensor:
    """Gated DeltaNet of h [T, hidden]; advances the convolution and recurrent state slots."""
    sizes = text.gdn
    parts = project(h, weights.projections)
    mixed = torch.cat([parts["query"], parts["key"], parts["value"]], dim=-1)  # [T, channels]
    mixed = ops.causal_conv_silu(mixed, weights.convolution, state.conv, batch.rows)
    widths = [sizes.key_width, sizes.key_width, sizes.value_width]
    query, key, value = torch.split(mixed, widths, dim=-1)
    key_shape = (sizes.key_heads, sizes.key_dim)
    value_shape = (sizes.value_heads, sizes.value_dim)
    decay, beta = ops.gdn_gating(parts["a"], parts["b"], weights.a_log, weights.dt_bias)
    out = ops.gated_delta_rule(
        ops.l2norm(query.unflatten(-1, key_shape), eps=L2_EPS),
        ops.l2norm(key.unflatten(-1, key_shape), eps=L2_EPS),
        value.unflatten(-1, value_shape),
        decay,
        beta,
        state.delta,
        batch.rows,
    )  # [T, Hv, Dv]
    gate = parts["z"].unflatten(-1, value_shape)
    normed = ops.gated_rmsnorm(out, gate, weights.norm, eps=text.eps)
    return ops.linear(normed.flatten(-2), weights.output)
