"""How stored weights become the resident ones: device, activation format, decoded or as stored."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.artifact import Artifact
from ninfer.artifact.directory import TensorEntry
from ninfer.models.qwen3_6 import WeightSource
from ninfer.ops.tensors import Weight

# Called with the object's name, bytes done and bytes in all.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Residency:
    """How weights stay in memory: where, in which activation format, decoded or as stored."""

    device: torch.device
    dtype: torch.dtype
    decoded: bool


def text_bytes(artifact: Artifact) -> int:
    """Stored bytes of the tensors that a text-only model keeps in memory."""
    return sum(
        entry.bytes
        for entry in artifact.directory.entries
        if isinstance(entry, TensorEntry) and _is_resident(entry.name)
    )


def _is_resident(name: str) -> bool:
    return name.startswith("text/") and not name.startswith("text/draft_head")


def weight_source(artifact: Artifact, residency: Residency, progress: Progress) -> WeightSource:
    """Hand out stored objects as they will stay in memory, reporting progress in stored bytes."""
    total = text_bytes(artifact)
    done = 0

    def source(name: str) -> Weight:
        nonlocal done
        weight = _resident(artifact.tensor(name), residency)
        done += artifact.entry(name).bytes
        progress(name, done, total)
        return weight

    return source


def _resident(stored: Weight, residency: Residency) -> Weight:
    if isinstance(stored, Tensor):
        # FP32 objects (decay rates, step sizes) keep their precision.
        keep = stored.dtype == torch.float32
        return stored.to(residency.device, None if keep else residency.dtype)
    moved = stored.to(residency.device)
    # Float32 holds every decoded value exactly; rounding to bf16 would change the answers.
    return moved.dequantise(torch.float32) if residency.decoded else moved
