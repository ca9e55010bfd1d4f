"""Callers: everyone who waits for the inference thread, so that each hears how it ends."""

import threading
from collections.abc import Callable

from ninfer.errors import NInferError
from ninfer.runtime import Progress, Sequence

# Takes the news of a running generation.
Deliver = Callable[[Progress | NInferError], None]
# Takes the error of a call that will not be run.
Fail = Callable[[NInferError], None]


class Callers:
    """Those who wait for a call to run, and those whose sequence runs. For several threads.

    Each is told of trouble once, by whoever finds it first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: set[Fail] = set()
        self._running: dict[Sequence, Deliver] = {}

    @property
    def count(self) -> int:
        """How many wait for anything."""
        return len(self._calls) + len(self._running)

    @property
    def sequences(self) -> list[Sequence]:
        """The sequences of those whose generation runs."""
        with self._lock:
            return list(self._running)

    def wait(self, fail: Fail) -> None:
        """Someone waits for a call to run."""
        with self._lock:
            self._calls.add(fail)

    def waits(self, fail: Fail) -> bool:
        """Whether the caller still waits; if not, it was told of trouble."""
        with self._lock:
            return fail in self._calls

    def done(self, fail: Fail) -> None:
        """The call has run."""
        with self._lock:
            self._calls.discard(fail)

    def add(self, sequence: Sequence, deliver: Deliver) -> None:
        """Someone waits for what a sequence gives."""
        with self._lock:
            self._running[sequence] = deliver

    def remove(self, sequence: Sequence) -> None:
        """Nobody waits for a sequence, known or not, any longer."""
        with self._lock:
            self._running.pop(sequence, None)

    def deliver(self, progress: Progress) -> None:
        """Hand on what a sequence gave, if anyone waits for it."""
        with self._lock:
            deliver = self._running.get(progress.sequence)
        if deliver:
            deliver(progress)

    def fail(self, error: NInferError) -> list[Sequence]:
        """Tell everyone; nobody waits afterwards. Gives the sequences that nobody waits for now."""
        with self._lock:
            told, left = [*self._calls, *self._running.values()], list(self._running)
            self._calls.clear()
            self._running.clear()
        for tell in told:
            tell(error)
        return left
