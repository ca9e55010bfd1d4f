"""Checks of a finished conversion: its structure, and samples of its rows against the sources."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from ninfer.artifact import Directory, TensorEntry, open_artifact
from ninfer.convert.encode import Encoder
from ninfer.convert.source_map import ObjectSource
from ninfer.errors import PayloadError
from ninfer.formats import PackedMatrix, numeric_format
from ninfer.models.inventory import ObjectSpec, check_inventory

# Rows looked at in each packed object: the first, the last tile and one between.
SAMPLES: Final = 3
TILE: Final = 128


def recheck(
    path: Path,
    directory: Directory,
    specs: list[ObjectSpec],
    resources: Mapping[str, bytes],
    encoder: Encoder,
    sources: Mapping[str, ObjectSource],
) -> None:
    """Open the file as a reader would and compare it with what it was made from.

    Direct objects, copied codes and resources must be equal; encoded rows must be within the
    format's bound of their source. Raises ArtifactError naming the object that is not.
    """
    with open_artifact(path) as artifact:
        if artifact.directory.entries != directory.entries:
            raise PayloadError(f"{path}: the directory read is not the one that was planned")
        check_inventory(artifact.directory, specs)
        for name, data in resources.items():
            if artifact.resource(name) != data:
                raise PayloadError(f"{path}: resource {name!r} differs from its source")
        for entry in directory.entries:
            if isinstance(entry, TensorEntry):
                _check(artifact.tensor(entry.name), entry, sources[entry.name], encoder)
                encoder.release()


def error_bound(values: Tensor, format: str) -> Tensor:
    """Largest error [n, K] that the encoder of `format` may leave in rows of float32 values.

    Grouped: half a step, plus what rounding the scale to binary16 moves the largest code. FP8: half
    a step of E4M3FN (2**-4 of the value, or of its least normal number), plus 2**-8 of the row's
    largest value for rounding the scale to bfloat16.
    """
    entry = numeric_format(format)
    if entry.kind == "fp8":
        amax = values.abs().amax(1, keepdim=True)
        return values.abs() * 2.0**-4 + amax * (2.0**-8 + 2.0**-16) + 2.0**-133
    width = values.shape[1]
    padded = torch.nn.functional.pad(values, (0, -width % entry.group))
    groups = padded.unflatten(1, (-1, entry.group))
    amax = groups.abs().amax(2, keepdim=True).expand_as(groups).flatten(1)[:, :width]
    step = amax / entry.qmax * (1 + 2.0**-11) + 2.0**-24
    bound: Tensor = (step / 2 + amax * 2.0**-11 + entry.qmax * 2.0**-25) * (1 + 2.0**-16)
    return bound


def _check(
    stored: Tensor | PackedMatrix, entry: TensorEntry, source: ObjectSource, encoder: Encoder
) -> None:
    if isinstance(stored, Tensor):
        rows = entry.shape[0] if entry.shape else 1
        wanted = encoder.block(entry, source, 0, rows)
        assert isinstance(wanted, Tensor)
        same = torch.equal(_words(stored), _words(wanted))
    else:
        same = all(
            _same_rows(stored.rows(start, stop), entry, source, encoder, start, stop)
            for start, stop in _samples(entry)
        )
    if not same:
        raise PayloadError(f"object {entry.name!r} does not hold what its source tensors hold")


def _words(tensor: Tensor) -> Tensor:
    """Stored bytes, by which a NaN equals itself and -0 differs from 0."""
    return tensor.contiguous().view(-1).view(torch.uint8)


def _same_rows(
    stored: PackedMatrix,
    entry: TensorEntry,
    source: ObjectSource,
    encoder: Encoder,
    start: int,
    stop: int,
) -> bool:
    stored.validate(entry.name)
    if encoder.copies(entry, source):
        wanted = encoder.block(entry, source, start, stop)
        assert not isinstance(wanted, Tensor)
        return torch.equal(stored.dequantise(), wanted.dequantise())
    values = encoder.values(entry, source, start, stop).to(torch.float32)
    error = (stored.dequantise() - values).abs()
    # Written so that NaN fails too.
    return bool((error <= error_bound(values, entry.format)).all())


def _samples(entry: TensorEntry) -> list[tuple[int, int]]:
    rows = entry.shape[0]
    tiles = -(-rows // TILE)
    choice = random.Random(entry.name)
    chosen = {0, tiles - 1, *(choice.randrange(tiles) for _ in range(SAMPLES - 2))}
    return [(tile * TILE, min((tile + 1) * TILE, rows)) for tile in sorted(chosen)]
