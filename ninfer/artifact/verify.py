"""Is a file sound: its hash against the published ones, and stored words of a sample of rows."""

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor

from ninfer.artifact.digest import file_sha256
from ninfer.artifact.directory import TensorEntry
from ninfer.artifact.packaged import PackagedArtifact, packaged_artifacts, record_of
from ninfer.artifact.published import PublishedArtifact, of_size
from ninfer.artifact.reader import Artifact
from ninfer.errors import PayloadError

Progress = Callable[[str, int, int], None]

# Rows that lie together are read together; a scale tile of NVFP4 has this many as well.
BLOCK_ROWS: Final = 128


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked, and what came out."""

    verdict: Literal["ok", "note", "bad"]
    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict:4}  {self.check}: {self.text}"


def check_published(path: Path, progress: Progress) -> Finding:
    """Compare a file's SHA-256 with what is published of its size; no other file is read.

    A file of the package has to be the one of its name. Raises ArtifactError when the file cannot
    be read.
    """
    size, own = path.stat().st_size, record_of(path)
    candidates: list[PublishedArtifact | PackagedArtifact] = [own] if own else [*of_size(size)]
    if not own:
        candidates += [item for item in packaged_artifacts() if item.bytes == size]
    if not candidates:
        return Finding("note", "hash", "no published artifact has this size; nothing to compare")
    found = file_sha256(path, progress)
    for item in candidates:
        if item.sha256 == found:
            return Finding("ok", "hash", f"SHA-256 is that of the published {item}")
    names = " or ".join(map(str, candidates))
    if own:
        return Finding("bad", "hash", f"this must be {names}, but the SHA-256 is {found}")
    return Finding("bad", "hash", f"the size is that of {names}, but the SHA-256 is {found}")


def check_samples(
    artifact: Artifact, progress: Progress, *, rows: int, seed: int = 0
) -> Iterator[Finding]:
    """Decode about `rows` rows of every tensor (0: all), each in blocks of BLOCK_ROWS.

    The first and the last block are always among them, the others are chosen by `seed` and the
    tensor's name. A finding for each tensor with a word that no writer may produce, or with a plain
    number that is not finite; one that sums up when there is none.
    """
    entries = [e for e in artifact.directory.entries if isinstance(e, TensorEntry)]
    total, done, decoded, bad = sum(entry.bytes for entry in entries), 0, 0, 0
    for entry in entries:
        try:
            decoded += _check_tensor(artifact, entry, rows, seed)
        except PayloadError as error:
            bad += 1
            yield Finding("bad", "payload", str(error))
        done += entry.bytes
        progress(entry.name, done, total)
    if not bad:
        share = "every row" if rows == 0 else f"{decoded:,} rows"
        yield Finding("ok", "payload", f"{share} of {len(entries):,} tensors decode")


def _check_tensor(artifact: Artifact, entry: TensorEntry, rows: int, seed: int) -> int:
    """Validate blocks of one tensor; returns how many rows they had."""
    value = artifact.tensor(entry.name)
    if isinstance(value, Tensor) and value.dim() == 0:
        value = value.view(1)
    height, seen = value.shape[0], 0
    for start in _block_starts(entry.name, height, rows, seed):
        stop = min(start + BLOCK_ROWS, height)
        where = f"{entry.name} rows {start}:{stop}"
        if isinstance(value, Tensor):
            _check_finite(value[start:stop], where)
        else:
            value.rows(start, stop).validate(where)
        seen += stop - start
    return seen


def _block_starts(name: str, height: int, rows: int, seed: int) -> list[int]:
    starts = range(0, height, BLOCK_ROWS)
    wanted = max(-(-rows // BLOCK_ROWS), 2)
    if rows == 0 or len(starts) <= wanted:
        return list(starts)
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    inner = random.Random(digest).sample(starts[1:-1], wanted - 2)
    return sorted([starts[0], *inner, starts[-1]])


def _check_finite(values: Tensor, where: str) -> None:
    if not values.is_floating_point():
        return
    bad = ~torch.isfinite(values)
    if bool(bad.any()):
        number = values[bad][0].item()
        raise PayloadError(f"{where}: holds {number}; weights must be finite")
