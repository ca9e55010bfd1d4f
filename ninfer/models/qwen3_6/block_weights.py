"""Typed weight views of the block drafters DFlash and DFlash2, and binding them by name."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ninfer.models.config import Dflash2Config, DflashConfig
from ninfer.models.forward_batch import KvCacheSpec
from ninfer.models.qwen3_6.binding import dense, row_view
from ninfer.models.qwen3_6.weights import DenseMlpWeights, FusedProjection, WeightSource
from ninfer.ops.tensors import Weight

BlockDrafterConfig = DflashConfig | Dflash2Config


@dataclass(frozen=True, slots=True)
class BlockAttentionWeights:
    """Attention of one layer. `context` is the key and value rows of `projections`, as views."""

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
    source: WeightSource,
    prefix: str,
    config: BlockDrafterConfig,
    windows: Sequence[int | None],
    *,
    convolutions: bool,
) -> BlockDrafterWeights:
    """Build the view from the objects below `prefix`; each is asked for exactly once."""
    return BlockDrafterWeights(
        feature_projection=source(f"{prefix}/feature_projection"),
        context_norm=dense(source, f"{prefix}/context_norm"),
        layers=tuple(
            _layer(source, f"{prefix}/layers/{index}", config, window, convolutions)
            for index, window in enumerate(windows)
        ),
        final_norm=dense(source, f"{prefix}/final_norm"),
    )


def _layer(
    source: WeightSource,
    prefix: str,
    config: BlockDrafterConfig,
    window: int | None,
    convolutions: bool,
) -> BlockLayerWeights:
    return BlockLayerWeights(
        input_norm=dense(source, f"{prefix}/input_norm"),
        attention=_attention(source, f"{prefix}/attention", config),
        post_norm=dense(source, f"{prefix}/post_attention_norm"),
        mlp=DenseMlpWeights(source(f"{prefix}/mlp/gate_up"), source(f"{prefix}/mlp/down")),
        window=window,
        attention_conv=_conv(source, f"{prefix}/attention_conv") if convolutions else None,
        mlp_conv=_conv(source, f"{prefix}/mlp_conv") if convolutions else None,
    )


def _attention(
    source: WeightSource, prefix: str, config: BlockDrafterConfig
) -> BlockAttentionWeights:
    query, kv = config.query_heads * config.head_dim, config.kv_heads * config.head_dim
    matrix = source(f"{prefix}/query_key_value")
    context = row_view(matrix, query, query + 2 * kv)
    return BlockAttentionWeights(
        projections=FusedProjection((matrix,), (("query", "key", "value"),), ((query, kv, kv),)),
        context=FusedProjection((context,), (("key", "value"),), ((kv, kv),)),
        query_norm=dense(source, f"{prefix}/query_norm"),
        key_norm=dense(source, f"{prefix}/key_norm"),
        output=source(f"{prefix}/output"),
    )


def _conv(source: WeightSource, prefix: str) -> DynamicConvWeights:
    return DynamicConvWeights(
        base=dense(source, f"{prefix}/base_kernel"), deltas=source(f"{prefix}/kernel_projection")
    )
