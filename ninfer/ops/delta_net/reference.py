"""Gated DeltaNet composed of the references of its parts."""

from typing import Final

import torch
from torch import Tensor

from ninfer.ops.conv.reference import causal_conv_silu
from ninfer.ops.gdn.reference import gated_delta_rule, gdn_gating
from ninfer.ops.norm.reference import gated_rmsnorm, l2norm
from ninfer.ops.tensors import ConvState, DeltaRows, DeltaState, DeltaWeights, RaggedRows

L2_EPS: Final = 1e-6


def delta_net(
    x: DeltaRows,
    weights: DeltaWeights,
    conv: ConvState,
    delta: DeltaState,
    rows: RaggedRows,
    *,
    eps: float,
) -> Tensor:
    """See the contract."""
    parts = (x.query, x.key, x.value)
    mixed = torch.cat([part.flatten(1) for part in parts], dim=1)  # [T, C]
    mixed = causal_conv_silu(mixed, weights.convolution, conv, rows)
    shared, own = x.key.shape[1:], x.value.shape[1:]
    widths = [shared.numel(), shared.numel(), own.numel()]
    query, key, value = torch.split(mixed, widths, dim=1)
    decay, beta = gdn_gating(x.a, x.b, weights.a_log, weights.dt_bias)
    out = gated_delta_rule(
        l2norm(query.unflatten(1, shared), eps=L2_EPS),
        l2norm(key.unflatten(1, shared), eps=L2_EPS),
        value.unflatten(1, own),
        decay,
        beta,
        delta,
        rows,
    )  # [T, Hv, Dv]
    return gated_rmsnorm(out, x.gate, weights.norm, eps=eps)
