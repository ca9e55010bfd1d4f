"""What the kernels of a model are launched with: its products and lookups, without its numbers.

The list comes from binding the model's weights as loading does, on tensors without memory, and
calling each op on each weight once for every route of token counts.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import UsageError
from ninfer.formats import (
    DIRECT_DTYPES,
    Fp8RowMatrix,
    GroupedMatrix,
    Nvfp4Matrix,
    numeric_format,
)
from ninfer.models.inventory import TensorSpec
from ninfer.models.qwen3_6.inventory import inventory
from ninfer.models.qwen3_6.mtp import MtpWeights, bind_mtp
from ninfer.models.qwen3_6.proposal import ProposalHead, bind_draft_head
from ninfer.models.qwen3_6.recipe import recipe_for
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
from ninfer.models.registry import REGISTERED
from ninfer.ops.tensors import StoredWeight, Weight

Call = Callable[[], object]

# One count of each token tile, and one beyond them.
TOKENS: Final = (16, 32, 64, 65)
_META: Final = torch.device("meta")


def models() -> tuple[str, ...]:
    """The models that have a list, as `model/weights`."""
    return tuple("/".join(identity) for identity in REGISTERED)


def model_calls(name: str, tokens: Sequence[int] = TOKENS) -> list[Call]:
    """Calls of ops that between them launch every kernel of a model, by the chosen backend.

    Each op and weight shape comes once with each of the token counts, in bf16. Raises UsageError
    for a name outside `models()`.
    """
    calls: dict[tuple[str, tuple[int, ...], str], list[Call]] = {}
    for role, weight in _weights(name):
        form = str(weight.dtype) if isinstance(weight, Tensor) else weight.format
        key = (role, tuple(weight.shape), form)
        calls.setdefault(key, list(_calls(role, weight, tokens)))
    return [call for group in calls.values() for call in group]


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


def _calls(role: str, weight: Weight, tokens: Sequence[int]) -> Iterator[Call]:
    dtype = torch.bfloat16
    if role == "embed":
        ids = torch.empty(1, dtype=torch.int64, device=_META)
        yield partial(ops.embed, ids, weight, dtype=dtype)
        return
    op = ops.linear_swiglu if role == "linear_swiglu" else ops.linear
    for count in tokens:
        yield partial(op, torch.empty(count, weight.shape[1], dtype=dtype, device=_META), weight)


def _weights(name: str) -> Iterator[tuple[str, Any]]:
    """Weights of a model with the op that reads them, in resident form."""
    found = {"/".join(identity): config for identity, config in REGISTERED.items()}
    if name not in found:
        raise UsageError(f"model {name!r} has no list of kernels; known: {', '.join(found)}")
    config = found[name]
    recipe = recipe_for(config, name.split("/")[1])
    specs = {s.name: s for s in inventory(config, recipe) if isinstance(s, TensorSpec)}

    def source(object_name: str) -> StoredWeight:
        spec = specs[object_name]
        return meta_weight(spec.format, spec.shape)

    yield from _read_by(bind_text(source, config, recipe))
    if config.mtp:
        yield from _read_by(bind_mtp(source, config, recipe))
    if config.draft_head_rows:
        yield from _read_by(bind_draft_head(source, config, recipe))


def _read_by(weights: Any) -> Iterator[tuple[str, Any]]:
    """(op, weight) of everything below a view of weights that has kernels; experts have none."""
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
            yield "linear", weights.router
        case MtpWeights():
            yield "linear", weights.input_projection
            yield from _read_by(weights.layer)
        case ProposalHead():
            yield "linear", weights.weight
        case _:
            raise AssertionError(type(weights))
