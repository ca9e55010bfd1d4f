"""Gated DeltaNet mixer of a decoder layer."""

from torch import Tensor

from ninfer import ops
from ninfer.models.config import TextConfig
from ninfer.models.forward_batch import ForwardBatch, GdnState
from ninfer.models.qwen3_6.projection import project
from ninfer.models.qwen3_6.weights import GdnWeights
from ninfer.ops.tensors import DeltaRows, DeltaWeights


def gdn_mixer(
    h: Tensor, weights: GdnWeights, text: TextConfig, batch: ForwardBatch, state: GdnState
) -> Tensor:
    """Gated DeltaNet of h [T, hidden]; advances the convolution and recurrent state slots."""
    sizes = text.gdn
    parts = project(h, weights.projections)
    shared, own = (sizes.key_heads, sizes.key_dim), (sizes.value_heads, sizes.value_dim)
    x = DeltaRows(
        query=parts["query"].unflatten(-1, shared),
        key=parts["key"].unflatten(-1, shared),
        value=parts["value"].unflatten(-1, own),
        gate=parts["z"].unflatten(-1, own),
        a=parts["a"],
        b=parts["b"],
    )
    small = DeltaWeights(weights.convolution, weights.a_log, weights.dt_bias, weights.norm)
    out = ops.delta_net(x, small, state.conv, state.delta, batch.rows, eps=text.eps)
    return ops.linear(out.flatten(-2), weights.output)
