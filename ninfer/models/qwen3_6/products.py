"""What of a model's weights which op reads, without the numbers in them.

The list comes from binding the weights as loading does, on tensors without memory. Kernels are
compiled and tuned by it.
"""

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.formats import (
    DIRECT_DTYPES,
    Fp8RowMatrix,
    GroupedMatrix,
    Nvfp4Matrix,
    numeric_format,
)
from ninfer.models.config import ModelConfig
from ninfer.models.inventory import TensorSpec
from ninfer.models.qwen3_6.inventory import inventory
from ninfer.models.qwen3_6.mtp import MtpWeights, bind_mtp
from ninfer.models.qwen3_6.proposal import ProposalHead, bind_draft_head
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.models.qwen3_6.weights import (
    AttentionWeights,
    DenseMlpWeights,
    FusedProjection,
    GdnWeights,
    LayerWeights,
    SparseMoeWeights,
    TextWeights,
    bind_text,
)
from ninfer.ops.tensors import StoredWeight, Weight

_META: Final = torch.device("meta")


def products(config: ModelConfig, recipe: Recipe) -> Iterator[tuple[str, Weight]]:
    """(op, weight) of every product and lookup of decoder, MTP and draft head, layer by layer.

    Weights have no memory and are in resident form. Experts are left out: see `mixtures`.
    """
    for op, weight in _all_read(config, recipe):
        if not isinstance(weight, SparseMoeWeights):
            yield op, weight


def mixtures(config: ModelConfig, recipe: Recipe) -> Iterator[SparseMoeWeights]:
    """The mixtures of experts of decoder and MTP, layer by layer, as `products` gives weights."""
    for _, weight in _all_read(config, recipe):
        if isinstance(weight, SparseMoeWeights):
            yield weight


def _all_read(config: ModelConfig, recipe: Recipe) -> Iterator[tuple[str, Any]]:
    specs = {s.name: s for s in inventory(config, recipe) if isinstance(s, TensorSpec)}

    def source(object_name: str) -> StoredWeight:
        spec = specs[object_name]
        return meta_weight(spec.format, spec.shape)

    yield from _read_by(bind_text(source, config, recipe))
    if config.mtp:
        yield from _read_by(bind_mtp(source, config, recipe))
    if config.draft_head_rows:
        yield from _read_by(bind_draft_head(source, config, recipe))


def meta_weight(format: str, shape: tuple[int, ...]) -> StoredWeight:
    """A stored tensor or matrix without memory."""

    def words(*size: int, dtype: torch.dtype = torch.uint8) -> Tensor:
        return torch.empty(size, dtype=dtype, device=_META)

    if format in DIRECT_DTYPES:
        return words(*shape, dtype=DIRECT_DTYPES[format])
    rows, columns = shape
    entry = numeric_format(format)
    if entry.kind == "fp4":
        return Nvfp4Matrix(
            (rows, columns), words(rows, columns // 2), words(rows * columns // 16), 1.0
        )
    if entry.kind == "fp8":
        return Fp8RowMatrix(
            (rows, columns), words(rows, columns), words(rows, dtype=torch.bfloat16)
        )
    groups = entry.groups_per_row(columns)
    return GroupedMatrix(
        format,
        (rows, columns),
        words(rows, groups, entry.base_bytes),
        words(rows, groups, entry.high_bytes) if entry.high_bytes else None,
        words(rows, groups, dtype=torch.float16),
    )


def _read_by(weights: Any) -> Iterator[tuple[str, Any]]:
    """(op, what it reads) of everything below a view of weights that products are made with."""
    match weights:
        case TextWeights():
            yield "embed", weights.embedding
            yield "linear", weights.head
            for layer in weights.layers:
                yield from _read_by(layer)
        case LayerWeights():
            yield from _read_by(weights.mixer)
            yield from _read_by(weights.feed_forward)
        case AttentionWeights() | GdnWeights():
            yield from _read_by(weights.projections)
            yield "linear", weights.output
        case FusedProjection():
            for matrix in weights.matrices:
                yield "linear", matrix
        case DenseMlpWeights():
            yield "linear_swiglu", weights.gate_up
            yield "linear", weights.down
        case SparseMoeWeights():
            yield "route_experts", weights.router
            yield "sparse_moe", weights
        case MtpWeights():
            yield "linear", weights.input_projection
            yield from _read_by(weights.layer)
        case ProposalHead():
            yield "linear", weights.weight
        case _:
            raise AssertionError(type(weights))
