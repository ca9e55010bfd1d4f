"""Logical parameters: what a model calls its weights, and in which rows of which object each lies.

Names are those of .ninfer container v3, `text/layers/3/attention/query` for one. Rows count along
the first axis of an object; a scalar has one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from ninfer.artifact.directory import Directory, TensorEntry
from ninfer.artifact.model_map import Binding
from ninfer.errors import InventoryError


class Piece(NamedTuple):
    """Rows start..stop - 1 of a stored object."""

    object: str
    start: int
    stop: int


# The pieces of a parameter lie one above the other.
ParameterTable = Mapping[str, tuple[Piece, ...]]


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A parameter of a model: its shape, and the formats that it may be stored in."""

    name: str
    shape: tuple[int, ...]
    formats: tuple[str, ...]


def merge_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The same rows in the same order, pieces that follow each other in one object joined."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if last is not None and last.object == piece.object and last.stop == piece.start:
            merged[-1] = Piece(last.object, last.start, piece.stop)
        else:
            merged.append(piece)
    return tuple(merged)


def bound_table(directory: Directory, specs: Sequence[ParameterSpec]) -> ParameterTable:
    """Where each parameter lies, read from the bindings of a v3 directory.

    Raises InventoryError that names the first parameter that has no binding, whose binding is not
    made of whole rows, or that has another shape or a format that the model cannot use.
    """
    assert directory.model_map is not None, "only v3 has bindings"
    bindings = directory.model_map.bindings
    table = {}
    for spec in specs:
        binding = bindings.get(spec.name)
        if binding is None:
            raise InventoryError(
                f"parameter {spec.name!r} has no binding; the file is not this model whole"
            )
        table[spec.name] = _checked(spec, binding, directory)
    return table


def _checked(spec: ParameterSpec, binding: Binding, directory: Directory) -> tuple[Piece, ...]:
    pieces = []
    for part in binding:
        entry = directory.by_name[part.object]
        assert isinstance(entry, TensorEntry), part.object
        if entry.format not in spec.formats:
            raise InventoryError(
                f"parameter {spec.name!r} is stored as {entry.format} in {entry.name!r}; expected"
                f" {' or '.join(spec.formats)}"
            )
        pieces.append(_rows(spec, entry, part.span))
    merged = merge_pieces(pieces)
    rows = sum(piece.stop - piece.start for piece in merged)
    if rows != (spec.shape[0] if spec.shape else 1):
        raise InventoryError(
            f"parameter {spec.name!r} is bound to {rows} rows; expected shape {list(spec.shape)}"
        )
    return merged


def _rows(spec: ParameterSpec, entry: TensorEntry, span: tuple[int, int] | None) -> Piece:
    """The rows of an object that an element range covers."""
    if entry.shape[1:] != spec.shape[1:] or len(entry.shape) != len(spec.shape):
        raise InventoryError(
            f"parameter {spec.name!r} has shape {list(spec.shape)}, but {entry.name!r} has shape"
            f" {list(entry.shape)}"
        )
    width = prod(entry.shape[1:])
    start, stop = span if span is not None else (0, prod(entry.shape))
    if start % width or stop % width:
        raise InventoryError(
            f"parameter {spec.name!r} is bound to elements {start} to {stop} of {entry.name!r},"
            f" which are not whole rows of {width}"
        )
    return Piece(entry.name, start // width, stop // width)
