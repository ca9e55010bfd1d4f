"""Synthetic artifacts: any small geometry of a registered family, with seeded random weights."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.artifact import ArtifactWriter
from ninfer.artifact.directory import Identity
from ninfer.artifact.writer import ResourceSpec, Spec, TensorSpec
from ninfer.convert.byte_tokenizer import build_tokenizer
from ninfer.convert.config_resource import config_document
from ninfer.convert.geometry import small_config_fields
from ninfer.formats import PackedMatrix, quantise, to_direct
from ninfer.formats.registry import numeric_format
from ninfer.models import CONFIG_RESOURCE, ModelConfig, object_specs
from ninfer.models.config import model_config_from_fields
from ninfer.models.inventory import TensorSpec as ModelTensor

WEIGHTS_ID: Final = "groupwise-int"

# Sizes that the published preprocessors use; images and videos are cut into these patches.
_PREPROCESSORS: Final[Mapping[str, Mapping[str, Any]]] = {
    "frontend/preprocessor_config.json": {
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "size": {"shortest_edge": 65_536, "longest_edge": 16_777_216},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    },
    "frontend/video_preprocessor_config.json": {
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "size": {"shortest_edge": 4_096, "longest_edge": 25_165_824},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    },
}

# The logits of a random head, in standard deviations of a normal distribution.
_LOGIT_SPREAD: Final = 3.0


def synthesise(
    path: str | os.PathLike[str],
    *,
    like: str,
    scale: str = "tiny",
    overrides: Mapping[str, int] | None = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Write a whole artifact of a small relative of `like`; the same arguments, the same bytes.

    `overrides` replaces sizes by their Hugging Face names. The weights are random: the text that
    such a model produces means nothing. Raises UsageError for an unknown family, scale or size,
    ConfigError for sizes that contradict each other, ArtifactError when the file cannot be written.
    """
    identity = Identity(f"synthetic/{like}-{scale}", WEIGHTS_ID)
    fields = small_config_fields(like, scale, overrides or {})
    config = model_config_from_fields(fields)
    resources = _resources(identity, fields, config)
    specs = object_specs(identity, config)
    values = _RandomValues(config, seed)
    declared: list[Spec] = [
        TensorSpec(spec.name, spec.shape, spec.format)
        if isinstance(spec, ModelTensor)
        else ResourceSpec(spec.name, len(resources[spec.name]))
        for spec in specs
    ]
    with ArtifactWriter(Path(path), identity, declared) as writer:
        total = sum(entry.bytes for entry in writer.directory.entries)
        done = 0
        for spec in specs:
            if isinstance(spec, ModelTensor):
                writer.write_tensor(spec.name, _stored(values.of(spec), spec))
            else:
                writer.write_resource(spec.name, resources[spec.name])
            done += writer.directory.by_name[spec.name].bytes
            if progress:
                progress(spec.name, done, total)


def _resources(
    identity: Identity, fields: Mapping[str, Any], config: ModelConfig
) -> dict[str, bytes]:
    resources = build_tokenizer(config.text.addressable)
    for name, content in _PREPROCESSORS.items():
        resources[name] = json.dumps(content, indent=2).encode()
    return {**resources, CONFIG_RESOURCE: config_document(identity, fields, resources)}


def _stored(values: Tensor, spec: ModelTensor) -> Tensor | PackedMatrix:
    if numeric_format(spec.format).kind == "direct":
        return to_direct(values, spec.format, spec.name)
    return quantise(values, spec.format, spec.name)


class _RandomValues:
    """Values of each object, drawn from a generator of its own, so that order does not matter."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        self._config = config
        self._seed = seed

    def of(self, spec: ModelTensor) -> Tensor:
        """Values of one object: sizes that keep activations and logits in a usual range."""
        name, leaf = spec.name, spec.name.rsplit("/", 1)[-1]
        if name == "text/draft_head_token_ids":
            return self._draft_ids()
        if name == "text/draft_head":
            return self._output_head()[self._draft_ids().long()]
        if name == "text/output_head":
            return self._output_head()
        noise = self._normal(name, spec.shape)
        if leaf == "a_log":
            # Decay rates between a few tokens and a few hundred.
            return noise.mul(1.5).sub(2.0)
        if (leaf == "norm" and "/gdn/" in name) or leaf == "weight":
            return noise.mul(0.1).add(1.0)
        if len(spec.shape) == 1:
            return noise.mul(0.1)
        if leaf == "token_embedding":
            return noise
        if leaf == "convolution":
            return noise.mul(spec.shape[0] ** -0.5)
        return noise.mul(spec.shape[1] ** -0.5)

    def _normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        return torch.randn(shape, generator=generator)

    def _output_head(self) -> Tensor:
        text = self._config.text
        spread = _LOGIT_SPREAD / math.sqrt(text.hidden)
        return self._normal("text/output_head", (text.vocab_rows, text.hidden)).mul(spread)

    def _draft_ids(self) -> Tensor:
        rows, ids = self._config.draft_head_rows, self._config.text.addressable
        order = self._normal("text/draft_head_token_ids", (ids,)).argsort()
        return order[:rows].sort().values.to(torch.int32)
