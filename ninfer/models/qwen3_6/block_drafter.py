"""Forward pass of the block drafters: context from decoder taps, then a block of masks at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.qwen3_6.block_weights import (
    BlockAttentionWeights,
    BlockDrafterConfig,
    BlockDrafterWeights,
    BlockLayerWeights,
    DynamicConvWeights,
)
from ninfer.models.qwen3_6.projection import project
from ninfer.ops.tensors import BlockRows, HostTable, PagedKV, RaggedRows, Weight

# Fixed by the drafters, which rotate whole heads by the plain token index.
ROPE_THETA: Final = 1e7
# Of the drafters' norms; the decoder's own may differ in a small model.
EPS: Final = 1e-6


@dataclass(frozen=True, slots=True)
class ContextRows:
    """Where the rows of a target pass belong in a drafter's context."""

    positions: Tensor  # [T] int64, index of the token in its sequence
    kv_slots: Tensor  # [T] int64, rows of the drafter's caches, as in a ForwardBatch


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """Query rows of several sequences: for each its anchor, then its masks."""

    tokens: Tensor  # [T] int64
    positions: Tensor  # [T] int64
    rows: RaggedRows
    anchors: Tensor  # [B] int64
    mask_rows: Tensor  # [M] int64, rows of the masks among T
    counts: tuple[int, ...]  # masks of each sequence; they add up to M


def draft_block(
    anchors: Tensor,
    frontiers: Sequence[int],
    counts: Sequence[int],
    page_table: Tensor,
    mask_id: int,
) -> DraftBlock:
    """A block of `counts[b]` >= 1 masks behind each anchor [B], all on the anchors' device.

    `frontiers[b]` is the anchor's position, which is the number of tokens in the drafter's
    context; `page_table` [B, P] says where those lie.
    """
    assert len(frontiers) == len(counts) == anchors.shape[0] and min(counts, default=1) >= 1
    starts = torch.tensor([0, *(count + 1 for count in counts)]).cumsum(0)
    tokens = torch.full((int(starts[-1]),), mask_id)
    is_mask = torch.ones(tokens.shape, dtype=torch.bool)
    is_mask[starts[:-1]] = False
    positions = [f + i for f, k in zip(frontiers, counts, strict=True) for i in range(k + 1)]
    ends = [f + k + 1 for f, k in zip(frontiers, counts, strict=True)]
    device = anchors.device
    tokens, starts = tokens.to(device), starts.to(device)
    tokens[starts[:-1]] = anchors
    return DraftBlock(
        tokens=tokens,
        positions=torch.tensor(positions, dtype=torch.int64, device=device),
        rows=RaggedRows(
            offsets=starts,
            kv_lengths=torch.tensor(ends, dtype=torch.int64, device=device),
            page_table=page_table,
            state_slots=torch.arange(len(counts), device=device),
        ),
        anchors=anchors,
        mask_rows=is_mask.nonzero().squeeze(1).to(device),
        counts=tuple(counts),
    )


def even_block(
    rows: BlockRows, spans: RaggedRows, anchors: Tensor, mask_rows: Tensor, count: int
) -> DraftBlock:
    """The same block of `count` masks behind every anchor [B], from what is on the device.

    `rows` are those of `ops.block_rows` with masks for drafts, `spans` says whose they are, and
    `mask_rows` [B * count] which of them are masks. Nothing waits for the device.
    """
    return DraftBlock(
        tokens=rows.tokens,
        positions=rows.positions,
        rows=spans,
        anchors=anchors,
        mask_rows=mask_rows,
        counts=(count,) * anchors.shape[0],
    )


def extend_context(
    weights: BlockDrafterWeights,
    config: BlockDrafterConfig,
    taps: Sequence[Tensor],
    rows: ContextRows,
    caches: Sequence[PagedKV],
) -> None:
    """Write keys and values of committed target positions into the context of every layer.

    `taps` are the residual streams [T, hidden] after the decoder layers `config.target_layers`,
    in that order. Rows do not see each other, so any cut into calls writes the same rows.
    Effect: the rows `rows.kv_slots` of `caches`, one cache per layer.
    """
    features = ops.linear(torch.cat(list(taps), dim=-1), weights.feature_projection)
    context = ops.rmsnorm(features, weights.context_norm, eps=EPS, unit_offset=False)
    for layer, cache in zip(weights.layers, caches, strict=True):
        parts = project(context, layer.attention.context)
        key = _heads(parts["key"], config.kv_heads, layer.attention.key_norm, rows.positions)
        value = parts["value"].unflatten(-1, (config.kv_heads, config.head_dim))
        ops.write_kv(key, value, cache, rows.kv_slots)


def block_forward(
    weights: BlockDrafterWeights,
    config: BlockDrafterConfig,
    embedding: Weight | HostTable,
    block: DraftBlock,
    caches: Sequence[PagedKV],
    *,
    dtype: torch.dtype,
) -> Tensor:
    """Hidden states [M, hidden] of the mask rows after the final norm.

    A head over mask row j drafts the token at that row's own position. `embedding` is the target's
    table, `dtype` that of activations. The caches are read and stay as they are.
    """
    residual = ops.embed(block.tokens, embedding, dtype=dtype)  # [T, hidden]
    h = ops.rmsnorm(residual, weights.layers[0].input_norm, eps=EPS, unit_offset=False)
    norms = [layer.input_norm for layer in weights.layers[1:]] + [weights.final_norm]
    for layer, next_norm, cache in zip(weights.layers, norms, caches, strict=True):
        mixed = _around(h, layer.attention_conv, block, _mixer(layer, config, block, cache))
        h, residual = ops.add_rmsnorm(mixed, residual, layer.post_norm, eps=EPS, unit_offset=False)
        update = _around(h, layer.mlp_conv, block, _mlp(layer))
        h, residual = ops.add_rmsnorm(update, residual, next_norm, eps=EPS, unit_offset=False)
    return h[block.mask_rows]


Part = Callable[[Tensor], Tensor]


def _around(h: Tensor, conv: DynamicConvWeights | None, block: DraftBlock, part: Part) -> Tensor:
    """A part of a layer with its two convolutions, whose deltas both come from the part's input."""
    if conv is None:
        return part(h)
    deltas = ops.linear(h, conv.deltas)
    deltas = deltas.unflatten(-1, (*conv.base.shape[:2], -1))  # [T, side, tap, group]
    inner = ops.dynamic_conv(h, conv.base[0], deltas[:, 0], block.rows)
    return ops.dynamic_conv(part(inner), conv.base[1], deltas[:, 1], block.rows)


def _mlp(layer: BlockLayerWeights) -> Part:
    return lambda h: ops.linear(ops.linear_swiglu(h, layer.mlp.gate_up), layer.mlp.down)


def _mixer(
    layer: BlockLayerWeights, config: BlockDrafterConfig, block: DraftBlock, cache: PagedKV
) -> Part:
    weights: BlockAttentionWeights = layer.attention

    def mix(h: Tensor) -> Tensor:
        parts = project(h, weights.projections)
        query = _heads(parts["query"], config.query_heads, weights.query_norm, block.positions)
        key = _heads(parts["key"], config.kv_heads, weights.key_norm, block.positions)
        value = parts["value"].unflatten(-1, (config.kv_heads, config.head_dim))
        mixed = ops.block_attention(
            query,
            key,
            value,
            cache,
            block.rows,
            window=layer.window,
            scale=config.head_dim**-0.5,
        )
        return ops.linear(mixed.flatten(-2), weights.output)

    return mix


def _heads(x: Tensor, heads: int, norm: Tensor, positions: Tensor) -> Tensor:
    """Split x [T, heads * D] into normed and rotated heads [T, heads, D]."""
    split = ops.rmsnorm(x.unflatten(-1, (heads, -1)), norm, eps=EPS, unit_offset=False)
    axes = positions.unsqueeze(0).expand(3, -1)
    return ops.mrope(split, axes, theta=ROPE_THETA, rotary_dim=split.shape[-1])
