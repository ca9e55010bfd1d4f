"""Uncommitted rows of recurrent layers: what one call does to the state slot of each sequence."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.tensors import RaggedRows


@dataclass(frozen=True, slots=True)
class Span:
    """New rows start..stop - 1 of one sequence, behind the kept rows that its slot still owes."""

    slot: int
    start: int
    stop: int
    position: int  # in the sequence, of its first new row
    kept: int  # accepted rows of the window, applied before the new ones
    held: bool  # the new rows go to the window instead of the state


def spans(op: str, rows: RaggedRows, pending: Tensor, capacity: int) -> Iterator[Span]:
    """The sequences that have rows, in order; waits for the device.

    Raises ValueError, before anything has changed, when a held sequence has more rows than a
    window of `capacity` rows takes.
    """
    bounds = rows.spans()
    held: list[bool] = [False] * len(bounds) if rows.held is None else rows.held.tolist()
    for (start, stop), stays in zip(bounds, held, strict=True):
        if stays and stop - start > capacity:
            seen = f"true for a sequence of {stop - start} rows"
            raise checks.wrong(op, "rows.held", seen, f"for at most {capacity} rows")
    kept: list[int] = pending[rows.state_slots].tolist()
    slots: list[int] = rows.state_slots.tolist()
    lengths: list[int] = rows.kv_lengths.tolist()
    return (
        Span(slot, start, stop, length - (stop - start), owed, stays)
        for slot, (start, stop), length, owed, stays in zip(
            slots, bounds, lengths, kept, held, strict=True
        )
        if start < stop
    )


def joined(runs: list[tuple[int, int]], device: torch.device) -> Tensor | slice:
    """Index of the rows of runs (first row, rows), one run behind the other; one needs no copy."""
    if len(runs) == 1:
        ((first, count),) = runs
        return slice(first, first + count)
    rows = [first + t for first, count in runs for t in range(count)]
    return torch.tensor(rows, dtype=torch.int64, device=device)


def shifted(rows: Tensor | slice, by: int) -> Tensor | slice:
    """The index `by` rows behind."""
    return slice(rows.start + by, rows.stop + by) if isinstance(rows, slice) else rows + by
