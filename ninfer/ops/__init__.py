"""Every op: the only import of ops that models and the runtime write, besides their views."""

from ninfer.ops.attention import paged_attention
from ninfer.ops.block_attention import block_attention
from ninfer.ops.conv import causal_conv_silu
from ninfer.ops.delta_net import delta_net
from ninfer.ops.dispatch import resident
from ninfer.ops.drafts import accept_drafts, block_rows
from ninfer.ops.dynamic_conv import dynamic_conv
from ninfer.ops.elementwise import add, sigmoid_mul, silu_mul
from ninfer.ops.embedding import embed, scatter_rows
from ninfer.ops.gdn import gated_delta_rule, gdn_gating
from ninfer.ops.kv_cache import read_kv, write_kv
from ninfer.ops.linear import linear, linear_add, linear_swiglu
from ninfer.ops.moe import route_experts, route_topk, sparse_moe
from ninfer.ops.norm import add_rmsnorm, gated_rmsnorm, l2norm, rmsnorm
from ninfer.ops.rope import mrope
from ninfer.ops.sampling import (
    add_bias,
    argmax,
    candidates,
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
from ninfer.ops.sampling.uniform import Purpose, uniform, uniform_bits
from ninfer.ops.selector import edge_scores, indexed_argmax, indexed_top, tempered_softmax
from ninfer.ops.tensors import (
    AllowedTokens,
    BlockRows,
    Candidates,
    ConvState,
    DeltaRows,
    DeltaState,
    DeltaWeights,
    DrawSettings,
    ExpertWeights,
    PagedKV,
    RaggedRows,
    SharedExpert,
    TokenBias,
    TokenPenalties,
    Weight,
)
from ninfer.ops.vision import (
    grid_positions,
    layer_norm,
    linear_bias,
    rope_2d,
    slice_attention,
)

__all__ = [
    "AllowedTokens",
    "BlockRows",
    "Candidates",
    "ConvState",
    "DeltaRows",
    "DeltaState",
    "DeltaWeights",
    "DrawSettings",
    "ExpertWeights",
    "PagedKV",
    "Purpose",
    "RaggedRows",
    "SharedExpert",
    "TokenBias",
    "TokenPenalties",
    "Weight",
    "accept_drafts",
    "add",
    "add_bias",
    "add_rmsnorm",
    "argmax",
    "block_attention",
    "block_rows",
    "candidates",
    "causal_conv_silu",
    "delta_net",
    "draw",
    "dynamic_conv",
    "edge_scores",
    "embed",
    "finite_rows",
    "gated_delta_rule",
    "gated_rmsnorm",
    "gdn_gating",
    "grid_positions",
    "indexed_argmax",
    "indexed_top",
    "l2norm",
    "layer_norm",
    "linear",
    "linear_add",
    "linear_bias",
    "linear_swiglu",
    "logprobs",
    "mask",
    "mrope",
    "next_tokens",
    "paged_attention",
    "penalise",
    "read_kv",
    "resident",
    "rmsnorm",
    "rope_2d",
    "route_experts",
    "route_topk",
    "sample",
    "scatter_rows",
    "sigmoid_mul",
    "silu_mul",
    "slice_attention",
    "sparse_moe",
    "tempered_softmax",
    "top_logprobs",
    "uniform",
    "uniform_bits",
    "uniforms",
    "write_kv",
]
