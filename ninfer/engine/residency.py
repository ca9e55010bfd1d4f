"""How stored weights become the resident ones: device, activation format, decoded or as stored."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.artifact import Artifact
from ninfer.engine.upload import CudaCard, UploadRing
from ninfer.errors import PayloadError
from ninfer.models.qwen3_6 import WeightSource
from ninfer.ops.tensors import StoredWeight

# Called with the object's name, bytes done and bytes in all.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Residency:
    """How weights stay in memory: where, in which activation format, decoded or as stored."""

    device: torch.device
    dtype: torch.dtype
    decoded: bool


def weight_source(
    artifact: Artifact,
    objects: Iterable[str],
    residency: Residency,
    progress: Progress,
    *,
    host: Collection[str] = (),
) -> WeightSource:
    """Hand out stored objects as they will stay in memory, reporting progress in stored bytes.

    `objects` are all that will be asked for; their bytes are the whole. Those of `host` stay in
    host memory as they are stored, which may be the file's own pages. The source raises
    PayloadError, naming object and place, for numbers that no writer may produce: all words are
    looked at where loading reads them anyway or the device reads them fast, otherwise the scales.
    """
    ring = UploadRing(CudaCard(residency.device)) if residency.device.type == "cuda" else None
    near = Residency(torch.device("cpu"), residency.dtype, decoded=False)
    total = sum(artifact.entry(name).bytes for name in objects)
    done = 0

    def source(name: str) -> StoredWeight:
        nonlocal done
        if name in host:
            weight = _on_device(name, artifact.tensor(name), near)
        else:
            stored = artifact.tensor_through(name, ring.fetch) if ring else artifact.tensor(name)
            weight = _on_device(name, stored, residency)
        done += artifact.entry(name).bytes
        progress(name, done, total)
        return weight

    return source


def _on_device(name: str, stored: StoredWeight, residency: Residency) -> StoredWeight:
    if isinstance(stored, Tensor):
        _check_finite(name, stored)
        # FP32 objects (decay rates, step sizes) keep their precision, token ids their values.
        keep = stored.dtype in (torch.float32, torch.int32)
        return stored.to(residency.device, None if keep else residency.dtype)
    moved = stored.to(residency.device)
    moved.validate(name, codes=residency.decoded or residency.device.type == "cuda")
    # Float32 holds every decoded value exactly; rounding to bf16 would change the answers.
    return moved.dequantise(torch.float32) if residency.decoded else moved


def _check_finite(name: str, stored: Tensor) -> None:
    if not stored.is_floating_point():
        return
    bad = ~stored.isfinite()
    if bool(bad.any()):
        place = [int(index[0]) for index in bad.nonzero(as_tuple=True)]
        raise PayloadError(f"{name}: value {place} is {float(stored[tuple(place)])}, not finite")
