"""Time as the fleet sees it, so that waiting can be tested without waiting."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since 1970, and a pause."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""

    def sleep(self, seconds: float) -> None:
        """Return that many seconds later."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Block for that many seconds."""
        time.sleep(seconds)
