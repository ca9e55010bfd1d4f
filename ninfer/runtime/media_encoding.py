"""Media encoding: the pictures of running sequences, one of them a step."""

from collections.abc import Callable, Iterable, Set

from torch import Tensor

from ninfer.errors import NInferError
from ninfer.request import Media
from ninfer.runtime.isolation import isolated
from ninfer.runtime.media import place_media
from ninfer.runtime.sequence import Sequence


class MediaEncoding:
    """Holds encoded media for as long as their sequence runs, and for no longer.

    A sequence whose media are not all encoded takes no part in passes. One item a step, so that
    neither a cancellation nor the other sequences wait for more than one. What a reused prefix
    covers is not encoded.
    """

    def __init__(self, encode: Callable[[Media], Tensor]) -> None:
        self._encode = encode
        self._rows: dict[Sequence, dict[bytes, Tensor]] = {}

    @property
    def held(self) -> Set[Sequence]:
        """Sequences that hold encoded media, whole or in part."""
        return self._rows.keys()

    def start(self, sequence: Sequence) -> None:
        """Take in a sequence that was admitted and has its reused prefix."""
        if sequence.runs:
            self._rows[sequence] = {}
            self._place(sequence)

    def advance(self, running: Iterable[Sequence]) -> tuple[Sequence, NInferError] | None:
        """Encode the next item of the first sequence that lacks one; the failure, if it fails."""
        sequence = next((s for s in running if not s.is_encoded), None)
        if sequence is None:
            return None
        item = self._missing(sequence)[0]
        rows = isolated("the encoding of its media", lambda: self._encode(item))
        if isinstance(rows, NInferError):
            return sequence, rows
        self._rows[sequence][item.digest] = rows
        self._place(sequence)
        return None

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence, known or not; it may start again."""
        self._rows.pop(sequence, None)
        sequence.media = None

    def _missing(self, sequence: Sequence) -> list[Media]:
        """Items that prefill will need and that are not encoded. The same one twice counts once."""
        done = self._rows[sequence]
        needed = (
            sequence.pictures[run.media]
            for run in sequence.runs
            if run.start + run.length > sequence.cached
        )
        found = {item.digest: item for item in needed if item.digest not in done}
        return list(found.values())

    def _place(self, sequence: Sequence) -> None:
        if self._missing(sequence):
            return
        done = self._rows[sequence]
        rows = {
            index: done[item.digest]
            for index, item in enumerate(sequence.pictures)
            if item.digest in done
        }
        sequence.media = place_media(sequence.prompt_length, sequence.runs, rows, sequence.cached)
