"""Callers: everyone who waits for the inference thread, so that each hears how it ends."""

import threading
from collections.abc import Callable, Iterable

from ninfer.engine.generations import Inbox, wake_all
from ninfer.errors import NInferError
from ninfer.runtime import Progress, Sequence
from ninfer.runtime.sequence import Status

# Takes the error of a call that will not be run.
Fail = Callable[[NInferError], None]


class Callers:
    """Those who wait for a call to run, and those whose sequence runs. For several threads.

    Each is told of trouble once, by whoever finds it first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: set[Fail] = set()
        self._running: dict[Sequence, Inbox] = {}
        self._queued: set[Sequence] = set()  # those of them that have not been seen to run

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

    def add(self, sequence: Sequence, inbox: Inbox) -> None:
        """Someone waits for what a sequence gives."""
        with self._lock:
            self._running[sequence] = inbox
            self._queued.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Nobody waits for a sequence, known or not, any longer."""
        with self._lock:
            self._running.pop(sequence, None)
            self._queued.discard(sequence)

    def deliver(self, news: Iterable[Progress], at: float) -> None:
        """Hand on what sequences gave by `at`; also that one has left the queue."""
        with self._lock:
            left = [sequence for sequence in self._queued if sequence.status is Status.RUNNING]
            self._queued.difference_update(left)
            told: list[Inbox] = []
            for progress in (*(Progress(sequence, ()) for sequence in left), *news):
                inbox = self._running.get(progress.sequence)
                if inbox is not None:
                    inbox.put(at, progress)
                    told.append(inbox)
        wake_all(told)

    def fail(self, error: NInferError, at: float) -> list[Sequence]:
        """Tell everyone; nobody waits afterwards. Gives the sequences that nobody waits for now."""
        with self._lock:
            calls, running = list(self._calls), dict(self._running)
            self._calls.clear()
            self._running.clear()
            self._queued.clear()
        for tell in calls:
            tell(error)
        for inbox in running.values():
            inbox.put(at, error)
        wake_all(running.values())
        return list(running)
