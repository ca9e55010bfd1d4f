"""Typed weight views of the Qwen3.6 vision tower and its merger, and binding them to parameters."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from ninfer.models.config import ModelConfig
from ninfer.models.parameters import ParameterTable
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.models.qwen3_6.weights import WeightSource, component_rows
from ninfer.models.stored_rows import StoredRows
from ninfer.ops.tensors import Weight

VISION_PREFIX: Final = "vision/"


@dataclass(frozen=True, slots=True)
class BiasedWeight:
    """A matrix [N, K] with a bias [N]."""

    weight: Weight
    bias: Tensor


@dataclass(frozen=True, slots=True)
class LayerNormWeights:
    """Scale and shift [D] of a layer norm."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, slots=True)
class VisionBlockWeights:
    """One block: norm, attention, norm, two-layer perceptron."""

    norm1: LayerNormWeights
    qkv: BiasedWeight  # [3 * hidden, hidden], query rows, then key rows, then value rows
    output: BiasedWeight  # [hidden, hidden]
    norm2: LayerNormWeights
    fc1: BiasedWeight  # [mlp_width, hidden]
    fc2: BiasedWeight  # [hidden, mlp_width]


@dataclass(frozen=True, slots=True)
class VisionWeights:
    """The tower and the merger that brings blocks of patches to text width."""

    patch_embedding: BiasedWeight  # [hidden, patch_row]
    position_embedding: Tensor  # [positions, hidden], a square table
    blocks: tuple[VisionBlockWeights, ...]
    merger_norm: LayerNormWeights  # [hidden]
    merger_fc1: BiasedWeight  # [merge_width, merge_width]
    merger_fc2: BiasedWeight  # [output, merge_width]


def bind_vision(
    source: WeightSource, config: ModelConfig, places: Recipe | ParameterTable
) -> VisionWeights:
    """Build the views from stored objects; `source` and `places` are those of `bind_text`."""
    assert config.vision is not None
    rows = component_rows(source, config, places, VISION_PREFIX)
    # The order of the published files, so that they are read from front to back.
    return VisionWeights(
        patch_embedding=_biased(rows, "vision/patch_embedding"),
        position_embedding=rows.tensor("vision/position_embedding"),
        blocks=tuple(_block(rows, f"vision/layers/{i}") for i in range(config.vision.depth)),
        merger_fc1=_biased(rows, "vision/merger/fc1"),
        merger_fc2=_biased(rows, "vision/merger/fc2"),
        merger_norm=_norm(rows, "vision/merger/norm"),
    )


def _block(rows: StoredRows, prefix: str) -> VisionBlockWeights:
    return VisionBlockWeights(
        qkv=_biased(rows, *(f"{prefix}/attention/{part}" for part in ("query", "key", "value"))),
        output=_biased(rows, f"{prefix}/attention/output"),
        fc1=_biased(rows, f"{prefix}/mlp/fc1"),
        fc2=_biased(rows, f"{prefix}/mlp/fc2"),
        norm1=_norm(rows, f"{prefix}/norm1"),
        norm2=_norm(rows, f"{prefix}/norm2"),
    )


def _biased(rows: StoredRows, *names: str) -> BiasedWeight:
    weight = rows.take(*names)
    bias = rows.take(*(f"{name}_bias" for name in names))
    assert isinstance(bias, Tensor), names
    return BiasedWeight(weight, bias)


def _norm(rows: StoredRows, name: str) -> LayerNormWeights:
    return LayerNormWeights(rows.tensor(f"{name}/weight"), rows.tensor(f"{name}/bias"))
