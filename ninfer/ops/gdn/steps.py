"""Rows of the gated delta rule one after another, for one sequence or for several side by side."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.ops.exact import pointwise


@dataclass(frozen=True, slots=True)
class Walk:
    """The rows of several sequences, ordered so that all sequences take a step together."""

    rows: Tensor | slice  # first rows of all, then second rows of those that have one, ...
    active: list[int]  # how many sequences take each step; they are the first ones

    @classmethod
    def over(cls, runs: list[tuple[int, int]], device: torch.device) -> "Walk":
        """The walk of runs (first row, rows), longest first."""
        if len(runs) == 1:
            ((first, count),) = runs
            return cls(slice(first, first + count), [1] * count)
        active = [sum(count > t for _, count in runs) for t in range(runs[0][1])]
        rows = [first + t for t, count in enumerate(active) for first, _ in runs[:count]]
        return cls(torch.tensor(rows, device=device), active)


def recurrent(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    matrix: Tensor,
    kept: torch.dtype | None = None,
) -> Tensor:
    """Rows of one sequence, one after another; `matrix` [Hv, Dv, Dk] is updated in place.

    Shapes as in the contract -> [n, Hv, Dv] in the type of `matrix`.
    """
    return walked(q, k, v, g, beta, matrix.unsqueeze(0), [1] * v.shape[0], kept)


def walked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    matrices: Tensor,
    active: list[int],
    kept: torch.dtype | None = None,
) -> Tensor:
    """Outputs [n, Hv, Dv] of rows in the order of a walk; see `written`."""
    q = spread(q, v.shape[1], matrices.dtype).unsqueeze(2)  # [n, Hv, 1, Dk]
    out = v.new_empty((v.shape[0], v.shape[1], 1, v.shape[2]), dtype=matrices.dtype)
    for part, across in written(k, v, g, beta, matrices, active, kept):
        torch.bmm(q[part].flatten(0, 1), across, out=out[part].flatten(0, 1))
    return out.squeeze(2).mul_(q.shape[3] ** -0.5)


def written(
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    matrices: Tensor,
    active: list[int],
    kept: torch.dtype | None = None,
) -> Iterator[tuple[slice, Tensor]]:
    """Write the rows of a walk into `matrices` [G, Hv, Dv, Dk], step by step.

    Gives the rows of each step once they are in, and the matrices that they are in, transposed, as
    [active * Hv, Dk, Dv]. Behind each step they are rounded to `kept`, the type of their slots.
    """
    # Row vectors times the transposed matrix: torch's bmm is many times slower for columns.
    k = spread(k, v.shape[1], matrices.dtype).unsqueeze(2)  # [n, Hv, 1, Dk]
    v = v.to(matrices.dtype).unsqueeze(2)  # [n, Hv, 1, Dv]
    decay, beta = pointwise(torch.exp, g)[..., None, None], beta[..., None, None]
    first = 0
    for count in active:
        part = slice(first, first + count)
        first += count
        matrix, key = matrices[:count].flatten(0, 1), k[part].flatten(0, 1)
        across = matrix.transpose(1, 2)
        matrix.mul_(decay[part].flatten(0, 1))
        error = v[part].flatten(0, 1) - torch.bmm(key, across)
        error.mul_(beta[part].flatten(0, 1))
        matrix.baddbmm_(error.transpose(1, 2), key)
        yield part, across
        round_to(kept, matrix)


def round_to(kept: torch.dtype | None, matrix: Tensor) -> None:
    """Round values, in place, to those that a narrower type has; None: leave them."""
    if kept is not None and kept is not matrix.dtype:
        matrix.copy_(matrix.to(kept))


def spread(x: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """Repeat each head of [n, Hk, D] for its neighbouring V heads: [n, Hv, D]."""
    wide_x = x.to(dtype)
    repeats = heads // x.shape[1]
    return wide_x if repeats == 1 else wide_x.repeat_interleave(repeats, dim=1)
