"""Typed weight views of the Qwen3.6 vision tower and its merger, and binding them to parameters."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from ninfer.models.config import ModelConfig
from ninfer.models.parameters import ParameterTable
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.models.qwen3_6.weights import WeightSource, component_rows
from ninfer.models.stored_rows import StoredRows
from ninfer.ops import resident
from ninfer.ops.tensors import Weight

T = TypeVar("T")

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
    on_host: bool = False  # everything above is in host memory, in its stored form

    def near(self, part: T, device: torch.device) -> T:
        """A part of the tower where it can be used: itself, or a copy that is the caller's."""
        return _moved(part, device) if self.on_host else part


def _moved(part: Any, device: torch.device) -> Any:
    if is_dataclass(part) and not hasattr(part, "to"):
        values = {item.name: getattr(part, item.name) for item in fields(part)}
        return replace(part, **{name: _moved(x, device) for name, x in values.items()})  # type: ignore[type-var]  # an instance, not a class
    return resident(part.to(device))


def part_of_tower(name: str) -> str:
    """The part that a parameter below `vision/` belongs to: what is brought to a device at once."""
    words = name.split("/")
    if words[1] == "layers":
        return "/".join(words[:3])
    return f"{VISION_PREFIX}{words[1].removesuffix('_bias')}"


def bind_vision(
    source: WeightSource,
    config: ModelConfig,
    places: Recipe | ParameterTable,
    *,
    on_host: bool = False,
) -> VisionWeights:
    """Build the views from stored objects; `source` and `places` are those of `bind_text`.

    With `on_host` the source gives them in host memory, and their form stays the stored one.
    """
    assert config.vision is not None
    rows = component_rows(source, config, places, VISION_PREFIX, as_stored=on_host)
    # The order of the published files, so that they are read from front to back.
    return VisionWeights(
        patch_embedding=_biased(rows, "vision/patch_embedding"),
        position_embedding=rows.tensor("vision/position_embedding"),
        blocks=tuple(_block(rows, f"vision/layers/{i}") for i in range(config.vision.depth)),
        merger_fc1=_biased(rows, "vision/merger/fc1"),
        merger_fc2=_biased(rows, "vision/merger/fc2"),
        merger_norm=_norm(rows, "vision/merger/norm"),
        on_host=on_host,
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
