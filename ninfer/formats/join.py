"""Matrices that lie apart, one above the other in one matrix."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ninfer.errors import FormatError
from ninfer.formats.packed import Fp8RowMatrix, GroupedMatrix, Nvfp4Matrix, PackedMatrix


def join_rows(parts: Sequence[Tensor | PackedMatrix]) -> Tensor | PackedMatrix:
    """All rows of `parts` in order, stored as they are; a single part is returned itself.

    Copies the words of several parts. Raises FormatError for parts of different formats, types or
    widths, and for NVFP4 parts whose divisors differ, since one matrix has one divisor.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        if _kind(part) != _kind(first):
            raise FormatError(
                f"rows stored as {_kind(first)} and as {_kind(part)} cannot be one matrix"
            )
    if isinstance(first, Tensor):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    shape = (sum(part.shape[0] for part in parts), first.shape[1])
    if isinstance(first, GroupedMatrix):
        return _grouped(first, [p for p in parts if isinstance(p, GroupedMatrix)], shape)
    if isinstance(first, Nvfp4Matrix):
        blocks = [part for part in parts if isinstance(part, Nvfp4Matrix)]
        return replace(
            first,
            shape=shape,
            codes=torch.cat([part.codes for part in blocks]),
            scales=torch.cat([part.scales for part in blocks]),
        )
    rows = [part for part in parts if isinstance(part, Fp8RowMatrix)]
    return replace(
        first,
        shape=shape,
        codes=torch.cat([part.codes for part in rows]),
        scales=torch.cat([part.scales for part in rows]),
    )


def _grouped(
    first: GroupedMatrix, parts: Sequence[GroupedMatrix], shape: tuple[int, int]
) -> GroupedMatrix:
    high = [part.high for part in parts if part.high is not None]
    return replace(
        first,
        shape=shape,
        base=torch.cat([part.base for part in parts]),
        high=torch.cat(high) if high else None,
        scales=torch.cat([part.scales for part in parts]),
    )


def _kind(part: Tensor | PackedMatrix) -> str:
    """Everything that rows of one matrix share, as words for an error."""
    if isinstance(part, Tensor):
        return f"{part.dtype} of width {list(part.shape[1:])}"
    divisor = f" with divisor {part.divisor}" if isinstance(part, Nvfp4Matrix) else ""
    return f"{part.format} of width {part.shape[1]}{divisor}"
