"""Stored words of an object, block of rows by block of rows, made from source tensors.

Numbers of unquantised checkpoints are encoded here; codes and scales of quantised checkpoints are
copied as they are.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from ninfer.artifact import TensorEntry
from ninfer.convert.checkpoint import Sources
from ninfer.convert.compressed import (
    check_stack,
    input_divisor,
    input_name,
    is_fp8,
    weight_divisor,
)
from ninfer.convert.source_map import DraftHead, DraftIds, InputDivisor, ObjectSource, Rows, Stack
from ninfer.convert.source_rows import (
    FLOATS,
    check_finite,
    expect,
    located,
    overlaps,
    read_rows,
    row_spans,
)
from ninfer.errors import CheckpointError, PayloadError
from ninfer.formats import PackedMatrix, fp8, quantise, to_direct
from ninfer.formats.packed import Nvfp4Matrix
from ninfer.formats.registry import numeric_format
from ninfer.formats.swizzle import swizzle


class Encoder:
    """Makes the blocks of each object; `draft_ids` are the rows of its draft head, if any."""

    def __init__(self, sources: Sources, draft_ids: Tensor | None) -> None:
        self._sources = sources
        self._draft_ids = draft_ids

    def check(self, entry: TensorEntry, source: ObjectSource) -> set[str]:
        """Refuse missing tensors, other shapes and other dtypes before anything is written.

        Returns the names of the source tensors that the object is made of. Raises CheckpointError.
        """
        match source:
            case Stack():
                return check_stack(self._sources, entry, source)
            case DraftHead():
                _, tensor = located(self._sources, source.head.tensor, source.origin)
                expect(tensor, source.head.shape, FLOATS)
                return {source.head.tensor}
            case InputDivisor():
                input_divisor(self._sources, source)
                return {input_name(name) for name in source.tensors}
            case DraftIds():
                return set()

    def release(self) -> None:
        """Let go of the source pages read so far."""
        self._sources.release()

    def spans(self, entry: TensorEntry) -> Iterator[tuple[int, int]]:
        """Row ranges of the blocks of an object."""
        if numeric_format(entry.format).kind == "direct":
            yield 0, entry.shape[0] if entry.shape else 1
        else:
            yield from row_spans(*entry.shape)

    def block(
        self, entry: TensorEntry, source: ObjectSource, start: int, stop: int
    ) -> Tensor | PackedMatrix:
        """Rows start:stop in stored form; `source` must have been checked.

        Raises CheckpointError for values that are not finite and FormatError for values that the
        format cannot hold.
        """
        match source:
            case Stack():
                return self._stacked(entry, source, start, stop)
            case DraftHead():
                assert self._draft_ids is not None
                values = self._values(source.head, source.origin, self._draft_ids[start:stop])
                return quantise(values, entry.format, entry.name)
            case DraftIds():
                assert self._draft_ids is not None
                return to_direct(self._draft_ids, entry.format, entry.name)
            case InputDivisor():
                return torch.tensor(input_divisor(self._sources, source))

    def values(self, entry: TensorEntry, source: ObjectSource, start: int, stop: int) -> Tensor:
        """Unquantised values [stop - start, K] that rows of a matrix were encoded from."""
        if isinstance(source, DraftHead):
            assert self._draft_ids is not None
            return self._values(source.head, source.origin, self._draft_ids[start:stop])
        assert isinstance(source, Stack), entry.name
        return self._plain(source, start, stop)

    def copies(self, entry: TensorEntry, source: ObjectSource) -> bool:
        """Whether the object's words are those of the source, apart from their order."""
        kind = numeric_format(entry.format).kind
        return kind in ("direct", "fp4") or (
            kind == "fp8" and isinstance(source, Stack) and is_fp8(self._sources, source)
        )

    def _stacked(
        self, entry: TensorEntry, source: Stack, start: int, stop: int
    ) -> Tensor | PackedMatrix:
        kind = numeric_format(entry.format).kind
        if kind == "fp4":
            return self._nvfp4(source, start, stop)
        if kind == "fp8" and is_fp8(self._sources, source):
            return self._fp8(source, start, stop)
        if kind != "direct":
            return quantise(self._plain(source, start, stop), entry.format, entry.name)
        rows = sum(piece.count for piece in source.pieces)
        values = self._plain(source, 0, rows).reshape(entry.shape)
        return to_direct(values, entry.format, entry.name)

    def _plain(self, source: Stack, start: int, stop: int) -> Tensor:
        parts = []
        for piece, low, high in overlaps(source.pieces, start, stop):
            holder, tensor = located(self._sources, piece.tensor, source.origin)
            part = read_rows(holder.read(piece.tensor), piece, low, high)
            check_finite(part, tensor)
            parts.append(part)
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _values(self, rows: Rows, origin: str, ids: Tensor) -> Tensor:
        holder, tensor = located(self._sources, rows.tensor, origin)
        values = holder.read(rows.tensor)[ids]
        check_finite(values, tensor)
        return values

    def _fields(
        self, source: Stack, suffix: str, start: int, stop: int, share: int
    ) -> Iterator[Tensor]:
        for piece, low, high in overlaps(source.pieces, start, stop):
            name = piece.tensor + suffix
            holder, _ = located(self._sources, name, source.origin)
            yield read_rows(holder.read(name), piece, low, high, share)

    def _nvfp4(self, source: Stack, start: int, stop: int) -> Nvfp4Matrix:
        codes = torch.cat(list(self._fields(source, "_packed", start, stop, 2)))
        grid = torch.cat(list(self._fields(source, "_scale", start, stop, 16))).view(torch.uint8)
        divisor = weight_divisor(self._sources, source)
        width = source.pieces[0].width
        matrix = Nvfp4Matrix((stop - start, width), codes, swizzle(grid), divisor)
        _validate(matrix, source)
        return matrix

    def _fp8(self, source: Stack, start: int, stop: int) -> PackedMatrix:
        codes = torch.cat(list(self._fields(source, "", start, stop, 1))).view(torch.uint8)
        width = source.pieces[0].width
        scales = list(self._fields(source, "_scale", start, stop, width))
        matrix = fp8.pack(codes, torch.cat(scales).flatten())
        _validate(matrix, source)
        return matrix


def _validate(matrix: PackedMatrix, source: Stack) -> None:
    """Illegal words of a quantised checkpoint are its own fault; the error says which tensors."""
    names = " + ".join(dict.fromkeys(repr(piece.tensor) for piece in source.pieces))
    try:
        matrix.validate(f"source of {names}")
    except PayloadError as error:
        raise CheckpointError(str(error)) from None
