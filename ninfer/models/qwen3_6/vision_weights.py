"""Typed weight views of the Qwen3.6 vision tower and its merger, and binding them by name."""

from dataclasses import dataclass

from torch import Tensor

from ninfer.models.config import VisionConfig
from ninfer.models.qwen3_6.weights import WeightSource
from ninfer.ops.tensors import Weight


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


def bind_vision(source: WeightSource, vision: VisionConfig) -> VisionWeights:
    """Build the views from stored objects; `source` is asked for each object exactly once."""
    return VisionWeights(
        patch_embedding=_biased(source, "vision/patch_embedding"),
        position_embedding=_dense(source, "vision/position_embedding"),
        blocks=tuple(_block(source, f"vision/layers/{index}") for index in range(vision.depth)),
        merger_norm=_norm(source, "vision/merger/norm"),
        merger_fc1=_biased(source, "vision/merger/fc1"),
        merger_fc2=_biased(source, "vision/merger/fc2"),
    )


def _block(source: WeightSource, prefix: str) -> VisionBlockWeights:
    return VisionBlockWeights(
        norm1=_norm(source, f"{prefix}/norm1"),
        qkv=_biased(source, f"{prefix}/attention/qkv"),
        output=_biased(source, f"{prefix}/attention/output"),
        norm2=_norm(source, f"{prefix}/norm2"),
        fc1=_biased(source, f"{prefix}/mlp/fc1"),
        fc2=_biased(source, f"{prefix}/mlp/fc2"),
    )


def _biased(source: WeightSource, name: str) -> BiasedWeight:
    return BiasedWeight(source(name), _dense(source, f"{name}_bias"))


def _norm(source: WeightSource, name: str) -> LayerNormWeights:
    return LayerNormWeights(_dense(source, f"{name}/weight"), _dense(source, f"{name}/bias"))


def _dense(source: WeightSource, name: str) -> Tensor:
    tensor = source(name)
    assert isinstance(tensor, Tensor), name
    return tensor
