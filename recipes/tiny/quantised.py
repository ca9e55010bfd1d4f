"""Imitated quantisation: training sees the values that the stored formats give back.

Gradients pass straight through. The rounding is that of `ninfer.formats.grouped`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.formats.grouped import group_scales
from ninfer.formats.registry import numeric_format


class Rows(NamedTuple):
    """So many rows of a matrix that are stored in one format."""

    height: int
    format: str


def imitate(weight: Tensor, rows: Sequence[Rows]) -> Tensor:
    """`weight` [N, K] as its stored form returns it; the gradient is that of `weight`."""
    with torch.no_grad():
        parts = weight.detach().float().split([part.height for part in rows])
        stored = [round_trip(p, part.format) for p, part in zip(parts, rows, strict=True)]
    return _StraightThrough.apply(weight, torch.cat(stored))


class _StraightThrough(torch.autograd.Function):
    """The second argument, with the gradient of the first."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, stored: Tensor) -> Tensor:
        return stored

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


def round_trip(matrix: Tensor, name: str) -> Tensor:
    """float32 [N, K] -> codes of a grouped format -> float32 [N, K]."""
    entry = numeric_format(name)
    width = matrix.shape[1]
    padded = functional.pad(matrix, (0, -width % entry.group))
    groups = padded.view(matrix.shape[0], -1, entry.group)
    scales = group_scales(groups.abs().amax(-1), entry.qmax).float().unsqueeze(-1)
    inverse = torch.where(scales == 0, 0.0, scales.reciprocal())
    codes = (groups * inverse).round().clamp(entry.qmin, entry.qmax)
    return (codes * scales).flatten(1)[:, :width]
