"""Synthetic models as data, and their weights made on a device without a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ninfer.artifact.directory import Identity
from ninfer.convert.geometry import SHAPES, config_fields
from ninfer.convert.random_values import RandomValues
from ninfer.convert.random_words import random_object
from ninfer.errors import InventoryError
from ninfer.formats import PackedMatrix
from ninfer.models import ModelConfig, ResourceSpec, TensorSpec, object_specs
from ninfer.models.config import model_config_from_fields


@dataclass(frozen=True, slots=True)
class SyntheticModel:
    """A model without weights: what it calls itself, its sizes, and the objects that it needs."""

    identity: Identity
    fields: Mapping[str, Any]  # Hugging Face names
    config: ModelConfig
    specs: tuple[TensorSpec | ResourceSpec, ...]


def synthetic_model(
    like: str,
    scale: str,
    *,
    drafter: str | None = None,
    overrides: Mapping[str, int] | None = None,
) -> SyntheticModel:
    """A relative of `like` at `scale`, under an identity that no published file has.

    Raises UsageError for an unknown model, scale, drafter or size, ConfigError for sizes that
    contradict each other.
    """
    fields = config_fields(like, scale, overrides or {}, drafter)
    config = model_config_from_fields(fields)
    shape = SHAPES[like]
    identity = Identity(f"synthetic/{shape.model_id}-{scale}", shape.weights_id)
    return SyntheticModel(identity, fields, config, tuple(object_specs(identity, config)))


class RandomWeights:
    """A weight source (see `models.qwen3_6.WeightSource`) that makes each object when asked.

    Packed matrices come as random legal words on the device, norms and other plain tensors in
    their stored number type. Asking twice gives the same object again, not the same memory.
    """

    def __init__(self, model: SyntheticModel, device: str | torch.device, seed: int) -> None:
        self.model = model
        self._specs = {spec.name: spec for spec in model.specs if isinstance(spec, TensorSpec)}
        self._values = RandomValues(model.config, seed, torch.device(device))

    def __call__(self, name: str) -> Tensor | PackedMatrix:
        """The object of that name. Raises InventoryError when the model has none."""
        spec = self._specs.get(name)
        if spec is None:
            raise InventoryError(f"{self.model.identity}: there is no tensor {name!r}")
        return random_object(self._values, spec)


def full_size_weights(
    like: str,
    *,
    device: str | torch.device,
    drafter: str | None = None,
    scale: str = "full",
    seed: int = 0,
) -> RandomWeights:
    """Random weights of every size as published, made on `device` without a file.

    For speed work: `bind_text` takes it as its source, with the configuration of `.model` and the
    recipe of its weights id, and needs only the device memory of the weights. Raises UsageError for
    an unknown model, scale or drafter.
    """
    return RandomWeights(synthetic_model(like, scale, drafter=drafter), device, seed)
