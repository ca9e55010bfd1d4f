"""Encoded samples to batches of tensors: packed for training, or one in a row."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import torch
from torch import Tensor

from recipes.tiny.documents import Documents
from recipes.tiny.encode import Encoded

# Weight of prompt tokens in the loss: enough to learn the text, too little to crowd out answers.
PROMPT_WEIGHT = 0.05


@dataclass(slots=True)
class Slices:
    """Time steps of images and videos, padded to the longest: N slices of P patches."""

    patches: Tensor  # [N, P, row] uint8
    valid: Tensor  # [N, P] bool
    corners: Tensor  # [N, P, 4] int64, rows of the table of position embeddings
    shares: Tensor  # [N, P, 4] float32, their weights
    cells: Tensor  # [N, P, 2] float32, row and column of the patch
    tokens: Tensor  # [M] int64, index of each merged row among the B * T tokens

    def to(self, device: torch.device) -> "Slices":
        """A copy on `device`."""
        return Slices(*(getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)))


@dataclass(slots=True)
class Batch:
    """Documents in B rows of T tokens."""

    ids: Tensor  # [B, T] int64
    weights: Tensor  # [B, T] float32, weight of the loss of producing this token; padding has 0
    targets: Tensor  # [B, T] bool, tokens of the answers
    positions: Tensor  # [3, B, T] int64
    documents: Documents
    owners: Tensor  # [B, T] int64, number of the sample, len(tasks) for padding
    tasks: list[str]  # of the samples
    slices: Slices | None = None

    def to(self, device: torch.device) -> "Batch":
        """A copy on `device`."""
        names = ("ids", "weights", "targets", "positions", "owners")
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        return Batch(
            **moved,
            documents=Documents(
                self.documents.offsets.to(device), self.documents.starts.to(device)
            ),
            tasks=self.tasks,
            slices=self.slices.to(device) if self.slices else None,
        )


def pack(rows: Sequence[Sequence[Encoded]], length: int, most_documents: int) -> Batch:
    """Samples one after another in each row, padded on the right to `length`.

    Padding is a document of its own. Starts are repeated up to `most_documents`, so that batches
    of one shape have tensors of one shape.
    """
    count = len(rows)
    ids = np.zeros((count, length), np.int64)
    weights = np.zeros((count, length), np.float32)
    targets = np.zeros((count, length), bool)
    positions = np.zeros((3, count, length), np.int64)
    offsets = np.zeros((count, length), np.int64)
    samples = [sample for row in rows for sample in row]
    owners = np.full((count, length), len(samples), np.int64)
    starts, places, owner = [], [], 0
    for index, row in enumerate(rows):
        at = 0
        for sample in row:
            span = slice(at, at + len(sample.ids))
            ids[index, span] = sample.ids
            targets[index, span] = sample.target
            weights[index, span] = np.where(sample.target, 1.0, PROMPT_WEIGHT)
            # The first token is nobody's to produce.
            weights[index, at] = 0
            positions[:, index, span] = sample.positions
            offsets[index, span] = np.arange(len(sample.ids))
            owners[index, span] = owner
            for run in sample.runs:
                weights[index, at + run.start : at + run.start + run.length] = 0
            starts.append(index * length + at)
            places.append((sample, index * length + at))
            at, owner = span.stop, owner + 1
        if at < length:
            starts.append(index * length + at)
            offsets[index, at:] = np.arange(length - at)
    assert len(starts) <= most_documents, len(starts)
    starts += [count * length] * (most_documents + 1 - len(starts))
    return Batch(
        ids=torch.from_numpy(ids),
        weights=torch.from_numpy(weights),
        targets=torch.from_numpy(targets),
        positions=torch.from_numpy(positions),
        documents=Documents(torch.from_numpy(offsets), torch.tensor(starts, dtype=torch.int32)),
        owners=torch.from_numpy(owners),
        tasks=[s.task for s in samples],
        slices=_slices(places),
    )


def pad(samples: Sequence[Encoded], length: int) -> Batch:
    """One sample a row, at most `length` tokens long; the padding behind belongs to it."""
    batch = pack([[sample] for sample in samples], length, 2 * len(samples))
    at = torch.arange(length)
    batch.documents = Documents(
        at.repeat(len(samples), 1),
        torch.arange(0, (len(samples) + 1) * length, length, dtype=torch.int32),
    )
    batch.positions[:, batch.owners == len(samples)] = at.repeat(len(samples), 1)[
        batch.owners == len(samples)
    ]
    return batch


def _slices(places: Sequence[tuple[Encoded, int]]) -> Slices | None:
    """Media of samples that begin at these tokens."""
    parts = [
        (first + run.start, sample.media[run.media], run)
        for sample, first in places
        for run in sample.runs
    ]
    if not parts:
        return None
    longest = max(run.length * 4 for _, _, run in parts)
    width = parts[0][1].patches.shape[1]
    patches = np.zeros((len(parts), longest, width), np.uint8)
    valid = np.zeros((len(parts), longest), bool)
    corners = np.zeros((len(parts), longest, 4), np.int64)
    shares = np.zeros((len(parts), longest, 4), np.float32)
    cells = np.zeros((len(parts), longest, 2), np.float32)
    tokens = []
    for index, (first, media, run) in enumerate(parts):
        size, start = run.length * 4, run.first_row * 4
        patches[index, :size] = media.patches[start : start + size]
        valid[index, :size] = True
        corners[index, :size], shares[index, :size], cells[index, :size] = _grid(*media.grid[1:])
        tokens.append(np.arange(first, first + run.length))
    arrays = (patches, valid, corners, shares, cells, np.concatenate(tokens))
    return Slices(*(torch.from_numpy(array) for array in arrays))


@cache
def _grid(height: int, width: int, side: int = 16) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corners and their shares [P, 4] in a table of side * side cells, and cells [P, 2].

    In merge-block order. The samples lie evenly from the first to the last row and column, and are
    interpolated between the four cells around them, as `ops.grid_positions` says.
    """
    blocks = np.arange(height * width).reshape(height // 2, 2, width // 2, 2)
    order = blocks.transpose(0, 2, 1, 3).ravel()
    row, column = order // width, order % width
    y, x = (row * (side - 1) / max(height - 1, 1), column * (side - 1) / max(width - 1, 1))
    top, left = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    down, right = np.minimum(top + 1, side - 1), np.minimum(left + 1, side - 1)
    dy, dx = y - top, x - left
    corners = np.stack([r * side + c for r in (top, down) for c in (left, right)], axis=1)
    shares = np.stack([a * b for a in (1 - dy, dy) for b in (1 - dx, dx)], axis=1)
    return corners, shares.astype(np.float32), np.stack([row, column], axis=1).astype(np.float32)
