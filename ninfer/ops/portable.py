"""The portable tier put together: its forms of the ops, and the form weights stay resident in."""

from ninfer.formats import GroupedMatrix
from ninfer.ops.attention.portable import paged_attention
from ninfer.ops.block_attention.portable import block_attention
from ninfer.ops.conv.portable import causal_conv_silu
from ninfer.ops.delta_net.portable import delta_net
from ninfer.ops.dispatch import register, register_residence
from ninfer.ops.drafts.portable import accept_drafts, block_rows
from ninfer.ops.dynamic_conv.portable import dynamic_conv
from ninfer.ops.elementwise.portable import add, sigmoid_mul, silu_mul
from ninfer.ops.embedding.portable import embed
from ninfer.ops.gdn.portable import gated_delta_rule, gdn_gating
from ninfer.ops.kv_cache.portable import read_kv, write_kv
from ninfer.ops.linear.fragment_order import groups_of, to_fragments
from ninfer.ops.linear.portable import linear, linear_add, linear_swiglu
from ninfer.ops.moe.portable import route_experts, route_topk, sparse_moe
from ninfer.ops.norm.portable import add_rmsnorm, gated_rmsnorm, l2norm, rmsnorm
from ninfer.ops.rope.portable import mrope
from ninfer.ops.sampling.portable import (
    add_bias,
    argmax,
    draw,
    finite_rows,
    logprobs,
    mask,
    next_tokens,
    penalise,
    sample,
    top_logprobs,
    uniforms,
)
from ninfer.ops.selector.portable import (
    edge_scores,
    indexed_argmax,
    indexed_top,
    tempered_softmax,
)
from ninfer.ops.tensors import StoredWeight, Weight
from ninfer.ops.vision.portable import slice_attention


def resident(weight: StoredWeight, paired: bool) -> Weight:
    """A grouped weight in fragment order with whole rows as slices; others as they are."""
    if isinstance(weight, GroupedMatrix):
        return to_fragments(weight, max(groups_of(weight.shape[1]), 1), paired=paired)
    return weight


register("portable", linear, linear_add, linear_swiglu, embed, dynamic_conv)
register("portable", paged_attention, block_attention, slice_attention, write_kv, read_kv)
register("portable", causal_conv_silu, gdn_gating, gated_delta_rule, delta_net)
register("portable", penalise, add_bias, mask, finite_rows, argmax, draw, sample, next_tokens)
register("portable", uniforms, logprobs, top_logprobs)
register("portable", indexed_argmax, indexed_top, edge_scores, tempered_softmax)
register("portable", accept_drafts, block_rows)
register("portable", route_topk, route_experts, sparse_moe)
register("portable", rmsnorm, add_rmsnorm, gated_rmsnorm, l2norm, mrope)
register("portable", silu_mul, sigmoid_mul, add)
register_residence("portable", resident)
