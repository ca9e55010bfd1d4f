"""Encoded samples to padded batches of tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
    """B samples padded on the right to T tokens."""

    ids: Tensor  # [B, T] int64
    weights: Tensor  # [B, T] float32, weight of the loss of producing this token; padding has 0
    targets: Tensor  # [B, T] bool, tokens of the answers
    positions: Tensor  # [3, B, T] int64
    lengths: Tensor  # [B] int64
    tasks: list[str]
    slices: Slices | None = None

    def to(self, device: torch.device) -> "Batch":
        """A copy on `device`."""
        moved: dict[str, Any] = {
            f.name: getattr(self, f.name).to(device, non_blocking=True)
            for f in fields(self)
            if isinstance(getattr(self, f.name), Tensor)
        }
        slices = self.slices.to(device) if self.slices else None
        return Batch(**moved, tasks=self.tasks, slices=slices)


def collate(samples: Sequence[Encoded], length: int) -> Batch:
    """Pad samples of at most `length` tokens to `length`."""
    count = len(samples)
    ids = np.zeros((count, length), np.int64)
    weights = np.zeros((count, length), np.float32)
    targets = np.zeros((count, length), bool)
    positions = np.zeros((3, count, length), np.int64)
    for row, sample in enumerate(samples):
        size = len(sample.ids)
        ids[row, :size] = sample.ids
        targets[row, :size] = sample.target
        weights[row, :size] = np.where(sample.target, 1.0, PROMPT_WEIGHT)
        positions[:, row, :size] = sample.positions
        for run in sample.runs:
            weights[row, run.start : run.start + run.length] = 0
    return Batch(
        ids=torch.from_numpy(ids),
        weights=torch.from_numpy(weights),
        targets=torch.from_numpy(targets),
        positions=torch.from_numpy(positions),
        lengths=torch.tensor([len(s.ids) for s in samples]),
        tasks=[s.task for s in samples],
        slices=_slices(samples, length),
    )


def _slices(samples: Sequence[Encoded], length: int) -> Slices | None:
    parts = [
        (row * length + run.start, sample.media[run.media], run)
        for row, sample in enumerate(samples)
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
    order = np.arange(height * width).reshape(height // 2, 2, width // 2, 2)
    order = order.transpose(0, 2, 1, 3).ravel()
    row, column = order // width, order % width
    y, x = (row * (side - 1) / max(height - 1, 1), column * (side - 1) / max(width - 1, 1))
    top, left = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    down, right = np.minimum(top + 1, side - 1), np.minimum(left + 1, side - 1)
    dy, dx = y - top, x - left
    corners = np.stack([r * side + c for r in (top, down) for c in (left, right)], axis=1)
    shares = np.stack([a * b for a in (1 - dy, dy) for b in (1 - dx, dx)], axis=1)
    return corners, shares.astype(np.float32), np.stack([row, column], axis=1).astype(np.float32)
