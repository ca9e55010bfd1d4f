"""What an object is made of: rows of source tensors, as data that names no checkpoint."""

from dataclasses import dataclass
from math import prod
from typing import Literal

# Who is asked first for a tensor; see Sources.
Origin = Literal["text", "other", "drafter"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one source tensor.

    The tensor of `shape` is seen as a matrix with `columns` columns, cut into periods of `period`
    rows; of each period the rows start:start + length are taken. With `transposed` the rows taken
    are the matrix' columns instead, all of them.
    """

    tensor: str
    shape: tuple[int, ...]
    columns: int
    period: int
    start: int
    length: int
    transposed: bool = False

    @property
    def count(self) -> int:
        """How many rows these are."""
        if self.transposed:
            return self.columns
        return prod(self.shape) // self.columns // self.period * self.length

    @property
    def width(self) -> int:
        """Entries of one row."""
        return prod(self.shape) // self.columns if self.transposed else self.columns


@dataclass(frozen=True, slots=True)
class Stack:
    """An object whose rows are those of the pieces, one piece after another."""

    pieces: tuple[Rows, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class DraftHead:
    """Rows of the output head in the order of the draft head's token ids."""

    head: Rows
    origin: Origin = "other"


@dataclass(frozen=True, slots=True)
class DraftIds:
    """The token ids of the draft head, chosen by counts."""


@dataclass(frozen=True, slots=True)
class InputDivisor:
    """The divisor of a quantised input, which all of these matrices share."""

    tensors: tuple[str, ...]
    origin: Origin


ObjectSource = Stack | DraftHead | DraftIds | InputDivisor


def whole(tensor: str, *shape: int, columns: int = 0) -> Rows:
    """All rows of a tensor; its last axis gives the columns unless they are given."""
    columns = columns or shape[-1]
    rows = prod(shape) // columns
    return Rows(tensor, shape, columns, rows, 0, rows)


def span(tensor: str, shape: tuple[int, int], start: int, length: int) -> Rows:
    """Rows start:start + length of a matrix."""
    return Rows(tensor, shape, shape[1], shape[0], start, length)


def every(tensor: str, shape: tuple[int, int], period: int, start: int, length: int) -> Rows:
    """Rows start:start + length of each `period` rows of a matrix."""
    return Rows(tensor, shape, shape[1], period, start, length)


def transposed(tensor: str, *shape: int) -> Rows:
    """Columns of a tensor whose first axis gives the rows, as rows."""
    columns = prod(shape[1:])
    return Rows(tensor, shape, columns, shape[0], 0, shape[0], transposed=True)
