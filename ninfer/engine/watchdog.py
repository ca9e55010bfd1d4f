"""Watchdog: notices work on the inference thread that takes too long."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# Looks so many times within the limit, at most this many seconds apart.
_LOOKS: Final = 8
_LONGEST_LOOK: Final = 15.0


class Watchdog:
    """Calls `found` with the seconds, once for each piece of work, when it exceeds `limit` seconds.

    It does so on a thread of its own, while the work still goes on. A limit of 0 watches nothing.
    """

    def __init__(
        self, limit: float, clock: Callable[[], float], found: Callable[[float], None]
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._found = found
        self._since: float | None = None
        self._closed = threading.Event()
        # Held while `found` runs, so that work which ends at that moment waits for it.
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="ninfer-watchdog", daemon=True)
        if limit:
            self._thread.start()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time what is done inside."""
        self._since = self._clock()
        try:
            yield
        finally:
            with self._looking:
                self._since = None

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        reported: float | None = None
        while not self._closed.wait(min(self._limit / _LOOKS, _LONGEST_LOOK)):
            with self._looking:
                since = self._since
                if since is None or since == reported:
                    continue
                seconds = self._clock() - since
                if seconds > self._limit:
                    reported = since
                    self._found(seconds)
