"""Typed weight views of a Qwen3.6 text decoder, and binding them by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ninfer.models.config import ModelConfig, TextConfig
from ninfer.models.qwen3_6.recipe import Parent, Recipe, attention_rows, gdn_rows
from ninfer.ops.tensors import ExpertWeights, SharedExpert, Weight

# Hands out a stored object by name, already on the device and in its resident form.
WeightSource = Callable[[str], Weight]


@dataclass(frozen=True, slots=True)
class FusedProjection:
    """Several projections of one input, stored in one or more matrices.

    Matrix i holds the projections `parts[i]` one after another; `rows[i]` are their heights.
    """

    matrices: tuple[Weight, ...]
    parts: tuple[tuple[str, ...], ...]
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Gated attention: query, key, gate, value projections and per-head norms."""

    projections: FusedProjection
    query_norm: Tensor  # [head_dim]
    key_norm: Tensor  # [head_dim]
    output: Weight  # [hidden, query_width]


@dataclass(frozen=True, slots=True)
class GdnWeights:
    """Gated DeltaNet: query, key, value, z, a, b projections, convolution, decay and norm."""

    projections: FusedProjection
    convolution: Tensor  # [conv_width, channels], last tap is the newest input
    a_log: Tensor  # [value_heads] float32
    dt_bias: Tensor  # [value_heads] float32
    norm: Tensor  # [value_dim]
    output: Weight  # [hidden, value_width]


@dataclass(frozen=True, slots=True)
class DenseMlpWeights:
    """SwiGLU with gate rows first, then up rows."""

    gate_up: Weight  # [2 * mlp_width, hidden]
    down: Weight  # [hidden, mlp_width]


@dataclass(frozen=True, slots=True)
class SparseMoeWeights:
    """Router rows with the shared expert's score as last row, routed and shared experts."""

    router: Weight  # [experts + 1, hidden]
    experts: ExpertWeights
    shared: SharedExpert


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer: norm, mixer, norm, feed-forward part."""

    input_norm: Tensor  # [hidden]
    mixer: AttentionWeights | GdnWeights
    post_norm: Tensor  # [hidden]
    feed_forward: DenseMlpWeights | SparseMoeWeights


@dataclass(frozen=True, slots=True)
class TextWeights:
    """The whole text decoder."""

    embedding: Weight  # [vocab_rows, hidden]
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor  # [hidden]
    head: Weight  # [vocab_rows, hidden]


def bind_text(source: WeightSource, config: ModelConfig, recipe: Recipe) -> TextWeights:
    """Build the views from stored objects; `source` is asked for each object exactly once."""
    text = config.text
    layers = tuple(_layer(source, text, recipe, index) for index in range(text.layers))
    return TextWeights(
        embedding=source("text/token_embedding"),
        layers=layers,
        final_norm=_dense(source, "text/final_norm"),
        head=source("text/output_head"),
    )


def _dense(source: WeightSource, name: str) -> Tensor:
    tensor = source(name)
    assert isinstance(tensor, Tensor), name
    return tensor


def _layer(source: WeightSource, text: TextConfig, recipe: Recipe, index: int) -> LayerWeights:
    prefix = f"text/layers/{index}"
    mixer: AttentionWeights | GdnWeights
    if text.is_attention(index):
        mixer = _attention(source, f"{prefix}/attention", text, recipe)
    else:
        mixer = _gdn(source, f"{prefix}/gdn", text, recipe)
    feed_forward: DenseMlpWeights | SparseMoeWeights
    if text.moe:
        feed_forward = _moe(source, f"{prefix}/moe", text.moe.experts)
    else:
        feed_forward = DenseMlpWeights(
            source(f"{prefix}/mlp/gate_up"), source(f"{prefix}/mlp/down")
        )
    return LayerWeights(
        input_norm=_dense(source, f"{prefix}/input_norm"),
        mixer=mixer,
        post_norm=_dense(source, f"{prefix}/post_attention_norm"),
        feed_forward=feed_forward,
    )


def _fused(
    source: WeightSource, prefix: str, parents: Sequence[Parent], rows: Mapping[str, int]
) -> FusedProjection:
    return FusedProjection(
        matrices=tuple(source(f"{prefix}/{parent.name}") for parent in parents),
        parts=tuple(parent.parts for parent in parents),
        rows=tuple(tuple(rows[part] for part in parent.parts) for parent in parents),
    )


def _attention(
    source: WeightSource, prefix: str, text: TextConfig, recipe: Recipe
) -> AttentionWeights:
    return AttentionWeights(
        projections=_fused(source, prefix, recipe.attention, attention_rows(text.attention)),
        query_norm=_dense(source, f"{prefix}/query_norm"),
        key_norm=_dense(source, f"{prefix}/key_norm"),
        output=source(f"{prefix}/output"),
    )


def _gdn(source: WeightSource, prefix: str, text: TextConfig, recipe: Recipe) -> GdnWeights:
    parents = (*recipe.gdn_gates, *recipe.gdn)
    return GdnWeights(
        projections=_fused(source, prefix, parents, gdn_rows(text.gdn)),
        convolution=_dense(source, f"{prefix}/convolution"),
        a_log=_dense(source, f"{prefix}/a_log"),
        dt_bias=_dense(source, f"{prefix}/dt_bias"),
        norm=_dense(source, f"{prefix}/norm"),
        output=source(f"{prefix}/output"),
    )


def _moe(source: WeightSource, prefix: str, experts: int) -> SparseMoeWeights:
    return SparseMoeWeights(
        router=source(f"{prefix}/router_shared_gate"),
        experts=ExpertWeights(
            source(f"{prefix}/routed_gate_up"), source(f"{prefix}/routed_down"), experts
        ),
        shared=SharedExpert(source(f"{prefix}/shared_gate_up"), source(f"{prefix}/shared_down")),
    )
