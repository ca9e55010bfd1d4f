"""Synthetic artifacts: any geometry of a registered family, with seeded random weights."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from ninfer.artifact import ArtifactWriter
from ninfer.artifact.space import check_space
from ninfer.artifact.writer import ResourceSpec, Spec, TensorSpec
from ninfer.convert.byte_tokenizer import build_tokenizer
from ninfer.convert.config_resource import config_document
from ninfer.convert.random_values import RandomValues
from ninfer.convert.random_words import random_object
from ninfer.convert.synthetic_model import SyntheticModel, synthetic_model
from ninfer.formats import PackedMatrix, quantise, to_direct
from ninfer.formats.registry import numeric_format
from ninfer.models import CONFIG_RESOURCE
from ninfer.models import TensorSpec as ModelTensor

# Sizes that the published preprocessors use; images and videos are cut into these patches.
PREPROCESSORS: Final[Mapping[str, Mapping[str, Any]]] = {
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


GENERATION: Final = "frontend/generation_config.json"
# Draws, as the published models do by default: of random weights, the best token says no more.
SAMPLING: Final = {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "top_k": 20}


def synthesise(
    path: str | os.PathLike[str],
    *,
    like: str,
    scale: str = "tiny",
    drafter: str | None = None,
    overrides: Mapping[str, int] | None = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Write a whole artifact of a relative of `like`; the same arguments, the same bytes.

    At scale "full" the words of packed matrices are drawn directly; at smaller scales values are
    drawn and then quantised. One object is in memory at a time. `drafter` adds "dflash2".
    `overrides` replaces sizes by their Hugging Face names. The weights are random: the text that
    such a model produces means nothing. Raises UsageError for an unknown model, scale, drafter or
    size, ConfigError for sizes that contradict each other, ArtifactError when the file does not fit
    on the disk or cannot be written.
    """
    model = synthetic_model(like, scale, drafter=drafter, overrides=overrides)
    resources = _resources(model)
    values = RandomValues(model.config, seed)
    make = random_object if scale == "full" else _quantised
    declared: list[Spec] = [
        TensorSpec(spec.name, spec.shape, spec.format)
        if isinstance(spec, ModelTensor)
        else ResourceSpec(spec.name, len(resources[spec.name]))
        for spec in model.specs
    ]
    with ArtifactWriter(Path(path), model.identity, declared) as writer:
        total = sum(entry.bytes for entry in writer.directory.entries)
        check_space(Path(path), total)
        done = 0
        for spec in model.specs:
            if isinstance(spec, ModelTensor):
                writer.write_tensor(spec.name, make(values, spec))
            else:
                writer.write_resource(spec.name, resources[spec.name])
            done += writer.directory.by_name[spec.name].bytes
            if progress:
                progress(spec.name, done, total)


def _quantised(values: RandomValues, spec: ModelTensor) -> Tensor | PackedMatrix:
    drawn = values.of(spec)
    if numeric_format(spec.format).kind == "direct":
        return to_direct(drawn, spec.format, spec.name)
    return quantise(drawn, spec.format, spec.name)


def _resources(model: SyntheticModel) -> dict[str, bytes]:
    resources = build_tokenizer(model.config.text.addressable)
    resources[GENERATION] = json.dumps(json.loads(resources[GENERATION]) | SAMPLING).encode()
    for name, content in PREPROCESSORS.items():
        resources[name] = json.dumps(content, indent=2).encode()
    document = config_document(model.identity, model.fields, resources)
    return {**resources, CONFIG_RESOURCE: document}
