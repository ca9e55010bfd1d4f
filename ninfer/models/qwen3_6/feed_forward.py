"""Feed-forward part of a decoder layer: dense SwiGLU or sparse mixture of experts."""

from torch import Tensor

from ninfer import ops
from ninfer.models.config import TextConfig
from ninfer.models.qwen3_6.weights import DenseMlpWeights, SparseMoeWeights


def feed_forward(
    h: Tensor, weights: DenseMlpWeights | SparseMoeWeights, text: TextConfig
) -> Tensor:
    """The part after the mixer, for h [T, hidden]; which one is a matter of the weights."""
    if isinstance(weights, DenseMlpWeights):
        return ops.linear(ops.linear_swiglu(h, weights.gate_up), weights.down)
    assert text.moe is not None
    chosen, ids, shared = ops.route_experts(h, weights.router, text.moe.top_k)
    return ops.sparse_moe(h, chosen, ids, weights.experts, weights.shared, shared)
