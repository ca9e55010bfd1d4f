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
    scores = ops.linear(h, weights.router)  # [T, experts + 1]
    routed, shared = scores[:, : text.moe.experts], scores[:, text.moe.experts :]
    expert_weights, expert_ids = ops.route_topk(routed, text.moe.top_k)
    return ops.sparse_moe(h, expert_weights, expert_ids, weights.experts, weights.shared, shared)
