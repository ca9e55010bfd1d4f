"""Typed weight views of the block drafters DFlash and DFlash2, and binding them by name."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ninfer.models.config import Dflash2Config, DflashConfig
from ninfer.models.forward_batch import KvCacheSpec
from ninfer.models.qwen3_6.weights import (
    DenseMlpWeights,
    FusedProjection,
    dense_mlp_weights,
    fused_projection,
)
from ninfer.models.stored_rows import StoredRows
from ninfer.ops.tensors import Weight

BlockDrafterConfig = DflashConfig | Dflash2Config


@dataclass(frozen=True, slots=True)
class BlockAttentionWeights:
    """Attention of one layer. `context` is `projections` without the query, as views."""

    projections: FusedProjection  # query, key, value
    context: FusedProjection  # key, value
    query_norm: Tensor  # [head_dim]
    key_norm: Tensor  # [head_dim]
    output: Weight  # [hidden, query_heads * head_dim]


@dataclass(frozen=True, slots=True)
class DynamicConvWeights:
    """Convolutions before (side 0) and after (side 1) a part of a layer."""

    base: Tensor  # [2, taps, hidden]
    deltas: Weight  # [2 * taps * groups, hidden], rows in order side, tap, group


@dataclass(frozen=True, slots=True)
class BlockLayerWeights:
    """One layer; DFlash has no convolutions. A `window` of None sees the whole context."""

    input_norm: Tensor  # [hidden]
    attention: BlockAttentionWeights
    post_norm: Tensor  # [hidden]
    mlp: DenseMlpWeights
    window: int | None
    attention_conv: DynamicConvWeights | None = None
    mlp_conv: DynamicConvWeights | None = None


@dataclass(frozen=True, slots=True)
class BlockDrafterWeights:
    """A block drafter without its head. All its norms are plain."""

    feature_projection: Weight  # [hidden, taps * hidden]
    context_norm: Tensor  # [hidden]
    layers: tuple[BlockLayerWeights, ...]
    final_norm: Tensor  # [hidden]


def block_cache_spec(config: BlockDrafterConfig) -> KvCacheSpec:
    """The context caches of a block drafter, one per layer."""
    return KvCacheSpec(config.layers, config.kv_heads, config.head_dim)


def bind_block_drafter(
    rows: StoredRows,
    drafter: str,
    config: BlockDrafterConfig,
    windows: Sequence[int | None],
    *,
    convolutions: bool,
) -> BlockDrafterWeights:
    """Build the view from the parameters below `drafter`, with one window per layer."""
    return BlockDrafterWeights(
        feature_projection=rows.take(f"{drafter}/feature_projection"),
        context_norm=rows.tensor(f"{drafter}/context_norm"),
        layers=tuple(
            _layer(rows, f"{drafter}/layers/{index}", config, window, convolutions)
            for index, window in enumerate(windows)
        ),
        final_norm=rows.tensor(f"{drafter}/final_norm"),
    )


def _layer(
    rows: StoredRows,
    prefix: str,
    config: BlockDrafterConfig,
    window: int | None,
    convolutions: bool,
) -> BlockLayerWeights:
    return BlockLayerWeights(
        input_norm=rows.tensor(f"{prefix}/input_norm"),
        attention_conv=_conv(rows, f"{prefix}/attention_conv") if convolutions else None,
        attention=_attention(rows, f"{prefix}/attention", config),
        post_norm=rows.tensor(f"{prefix}/post_attention_norm"),
        mlp_conv=_conv(rows, f"{prefix}/mlp_conv") if convolutions else None,
        mlp=dense_mlp_weights(rows, f"{prefix}/mlp"),
        window=window,
    )


def _attention(rows: StoredRows, prefix: str, config: BlockDrafterConfig) -> BlockAttentionWeights:
    kv = config.kv_heads * config.head_dim
    heights = {"query": config.query_heads * config.head_dim, "key": kv, "value": kv}
    projections = fused_projection(rows, {p: f"{prefix}/{p}" for p in heights}, heights)
    return BlockAttentionWeights(
        projections=projections,
        context=_without(projections, "query"),
        query_norm=rows.tensor(f"{prefix}/query_norm"),
        key_norm=rows.tensor(f"{prefix}/key_norm"),
        output=rows.take(f"{prefix}/output"),
    )


def _without(fused: FusedProjection, part: str) -> FusedProjection:
    """The other projections as views. Raises FormatError for a form that cannot be cut there."""
    kept: list[tuple[Weight, tuple[str, ...], tuple[int, ...]]] = []
    for matrix, parts, heights in zip(fused.matrices, fused.parts, fused.rows, strict=True):
        at = parts.index(part) if part in parts else len(parts)
        for span in (slice(0, at), slice(at + 1, len(parts))):
            if parts[span]:
                start = sum(heights[: span.start])
                view = _row_view(matrix, start, start + sum(heights[span]))
                kept.append((view, parts[span], heights[span]))
    matrices, names, sizes = zip(*kept, strict=True)
    return FusedProjection(matrices, names, sizes)


def _row_view(weight: Weight, start: int, stop: int) -> Weight:
    return weight[start:stop] if isinstance(weight, Tensor) else weight.rows(start, stop)


def _conv(rows: StoredRows, prefix: str) -> DynamicConvWeights:
    return DynamicConvWeights(
        base=rows.tensor(f"{prefix}/base_kernel"), deltas=rows.take(f"{prefix}/kernel_projection")
    )
