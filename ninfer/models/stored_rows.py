"""Parameters to weights: rows of stored objects as views, joined where they lie apart."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from ninfer.errors import FormatError, InventoryError
from ninfer.formats import join_rows
from ninfer.models.parameters import ParameterTable, Piece, merge_pieces
from ninfer.ops import resident
from ninfer.ops.tensors import StoredWeight, Weight

# Hands out a stored object by name, already on the device.
ObjectSource = Callable[[str], StoredWeight]


class StoredRows:
    """Takes parameters out of stored objects, each parameter once.

    An object is asked for when its first parameter is taken and let go with its last one.
    """

    def __init__(
        self,
        source: ObjectSource,
        table: ParameterTable,
        names: Iterable[str],
        *,
        as_stored: bool = False,
    ) -> None:
        """`names` are all parameters that will be taken, all in stored form if `as_stored`."""
        self._as_stored = as_stored
        self._source = source
        self._table = table
        self._waiting = Counter(piece.object for name in names for piece in table[name])
        self._objects: dict[str, StoredWeight] = {}

    def take(self, *names: str, paired: bool = False) -> Weight:
        """The named parameters one above the other, in the form that the chosen kernels read.

        `paired` is for the two halves of a SwiGLU (see `ninfer.ops.resident`). Raises
        InventoryError when parameters that must be one matrix are stored in different formats, and
        for rows that the format does not let apart.
        """
        stored = self.stored(*names)
        return stored if self._as_stored else resident(stored, paired=paired)

    def stored(self, *names: str) -> StoredWeight:
        """The named parameters as `take` joins them, in their stored form.

        A view where they follow each other in one object, else a copy.
        """
        pieces = [piece for name in names for piece in self._table[name]]
        runs = merge_pieces(pieces)
        try:
            weight = join_rows([self._view(run) for run in runs])
        except FormatError as error:
            first = self._culprit(names, runs)
            raise InventoryError(f"parameter {first!r}: {error}") from None
        self._let_go(pieces)
        return weight

    def tensor(self, name: str) -> Tensor:
        """A parameter that is a plain tensor in every artifact: a norm, a bias, a decay rate."""
        weight = self.take(name)
        assert isinstance(weight, Tensor), name
        return weight

    def runs(self, name: str) -> tuple[Piece, ...]:
        """Where a parameter lies."""
        return self._table[name]

    def _view(self, piece: Piece) -> StoredWeight:
        if piece.object not in self._objects:
            self._objects[piece.object] = self._source(piece.object)
        whole = self._objects[piece.object]
        rows = whole.shape[0] if len(whole.shape) else 1
        if (piece.start, piece.stop) == (0, rows):
            return whole
        if isinstance(whole, Tensor):
            return whole[piece.start : piece.stop]
        return whole.rows(piece.start, piece.stop)

    def _culprit(self, names: Sequence[str], runs: Sequence[Piece]) -> str:
        """The first parameter that does not go with the one before."""
        for run in runs:
            try:
                join_rows([self._view(runs[0]), self._view(run)])
            except FormatError:
                return next(
                    name
                    for name in names
                    for piece in self._table[name]
                    if piece.object == run.object and run.start <= piece.start < run.stop
                )
        return names[0]

    def _let_go(self, pieces: Sequence[Piece]) -> None:
        self._waiting.subtract(piece.object for piece in pieces)
        for name in {piece.object for piece in pieces}:
            if self._waiting[name] <= 0:
                self._objects.pop(name, None)
