"""Typed weight views of a Qwen3.6 text decoder, and binding them to parameters."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ninfer.models.config import ModelConfig, TextConfig
from ninfer.models.parameters import ParameterTable, Piece
from ninfer.models.qwen3_6.parameters import stored_table
from ninfer.models.qwen3_6.recipe import Recipe, attention_rows, gdn_rows
from ninfer.models.stored_rows import ObjectSource, StoredRows
from ninfer.ops.tensors import ExpertWeights, HostTable, SharedExpert, Weight

# Hands out a stored object by name, already on the device and in its resident form.
WeightSource = ObjectSource
TEXT_PREFIX = "text/"


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

    embedding: Weight | HostTable  # [vocab_rows, hidden]
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor  # [hidden]
    head: Weight  # [vocab_rows, hidden]


def bind_text(
    source: WeightSource,
    config: ModelConfig,
    places: Recipe | ParameterTable,
    *,
    host_embedding: bool = False,
) -> TextWeights:
    """Build the views from stored objects; `source` is asked for each object exactly once.

    `places` says where the parameters lie: the recipe of a v2 file, or a table, for instance of the
    bindings of a v3 file. Projections of one input that lie in one object become one matrix. With
    `host_embedding` the source gives the table of embeddings in host memory, where it stays.
    Raises InventoryError for parts of one matrix that are stored in different formats.
    """
    text, rows = config.text, component_rows(source, config, places, TEXT_PREFIX)
    # The order of the published files, so that they are read from front to back.
    embedding: Weight | HostTable
    if host_embedding:
        embedding = HostTable(rows.stored("text/token_embedding"))
    else:
        embedding = rows.take("text/token_embedding")
    layers = tuple(_layer(rows, text, index) for index in range(text.layers))
    return TextWeights(
        embedding=embedding,
        layers=layers,
        final_norm=rows.tensor("text/final_norm"),
        head=rows.take("text/output_head"),
    )


def component_rows(
    source: WeightSource,
    config: ModelConfig,
    places: Recipe | ParameterTable,
    prefix: str,
    *,
    as_stored: bool = False,
) -> StoredRows:
    """The parameters of one component, all of which are going to be taken; see `bind_text`."""
    table = stored_table(config, places) if isinstance(places, Recipe) else places
    names = [name for name in table if name.startswith(prefix)]
    return StoredRows(source, table, names, as_stored=as_stored)


def fused_projection(
    stored: StoredRows, names: Mapping[str, str], heights: Mapping[str, int]
) -> FusedProjection:
    """Projections of one input; those that follow each other in one object share a matrix.

    `names` and `heights` give the parameter and the rows of each part. Matrices are in the order
    in which `names` first comes to their objects.
    """
    groups = _neighbours({part: stored.runs(name) for part, name in names.items()})
    return FusedProjection(
        matrices=tuple(stored.take(*(names[part] for part in group)) for group in groups),
        parts=tuple(groups),
        rows=tuple(tuple(heights[part] for part in group) for group in groups),
    )


def _neighbours(places: Mapping[str, tuple[Piece, ...]]) -> list[tuple[str, ...]]:
    """Parts whose rows follow each other in one object, group by group, in row order."""
    by_object: dict[str, list[str]] = {}
    for part, pieces in places.items():
        # A part in several pieces is put together into a matrix of its own.
        key = pieces[0].object if len(pieces) == 1 else f"\0{part}"
        by_object.setdefault(key, []).append(part)
    groups: list[tuple[str, ...]] = []
    for parts in by_object.values():
        parts.sort(key=lambda part: places[part][0].start)
        run = [parts[0]]
        for part in parts[1:]:
            if places[part][0].start == places[run[-1]][0].stop:
                run.append(part)
            else:
                groups.append(tuple(run))
                run = [part]
        groups.append(tuple(run))
    return groups


def _layer(stored: StoredRows, text: TextConfig, index: int) -> LayerWeights:
    prefix = f"text/layers/{index}"
    input_norm = stored.tensor(f"{prefix}/input_norm")
    mixer: AttentionWeights | GdnWeights
    if text.is_attention(index):
        mixer = attention_weights(stored, f"{prefix}/attention", text)
    else:
        mixer = _gdn(stored, f"{prefix}/gdn", text)
    post_norm = stored.tensor(f"{prefix}/post_attention_norm")
    return LayerWeights(input_norm, mixer, post_norm, feed_forward_weights(stored, prefix, text))


def feed_forward_weights(
    stored: StoredRows, prefix: str, text: TextConfig
) -> DenseMlpWeights | SparseMoeWeights:
    """The feed-forward part of the layer `prefix`."""
    if text.moe:
        return _moe(stored, f"{prefix}/moe", text.moe.experts)
    return dense_mlp_weights(stored, f"{prefix}/mlp")


def dense_mlp_weights(stored: StoredRows, prefix: str) -> DenseMlpWeights:
    """A SwiGLU part from the parameters gate, up and down below `prefix`."""
    gate_up = stored.take(f"{prefix}/gate", f"{prefix}/up", paired=True)
    return DenseMlpWeights(gate_up, stored.take(f"{prefix}/down"))


def attention_weights(stored: StoredRows, prefix: str, text: TextConfig) -> AttentionWeights:
    """Gated attention from the parameters below `prefix`."""
    heights = attention_rows(text.attention)
    return AttentionWeights(
        projections=fused_projection(stored, {p: f"{prefix}/{p}" for p in heights}, heights),
        query_norm=stored.tensor(f"{prefix}/query_norm"),
        key_norm=stored.tensor(f"{prefix}/key_norm"),
        output=stored.take(f"{prefix}/output"),
    )


def _gdn(stored: StoredRows, prefix: str, text: TextConfig) -> GdnWeights:
    heights = gdn_rows(text.gdn)
    names = {
        "a": f"{prefix}/a_projection",
        "b": f"{prefix}/b_projection",
        **{part: f"{prefix}/{part}" for part in ("query", "key", "value", "z")},
    }
    a_log, dt_bias = stored.tensor(f"{prefix}/a_log"), stored.tensor(f"{prefix}/dt_bias")
    convolution = stored.tensor(f"{prefix}/convolution")
    return GdnWeights(
        projections=fused_projection(stored, names, heights),
        convolution=convolution,
        a_log=a_log,
        dt_bias=dt_bias,
        norm=stored.tensor(f"{prefix}/norm"),
        output=stored.take(f"{prefix}/output"),
    )


def _moe(stored: StoredRows, prefix: str, experts: int) -> SparseMoeWeights:
    routed = [f"{prefix}/experts/{expert}" for expert in range(experts)]
    return SparseMoeWeights(
        router=stored.take(f"{prefix}/router", f"{prefix}/shared_score"),
        experts=ExpertWeights(
            stored.take(*(f"{name}/{part}" for name in routed for part in ("gate", "up"))),
            stored.take(*(f"{name}/down" for name in routed)),
            experts,
        ),
        shared=SharedExpert(
            stored.take(f"{prefix}/shared/gate", f"{prefix}/shared/up"),
            stored.take(f"{prefix}/shared/down"),
        ),
    )
