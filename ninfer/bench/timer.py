"""The one timer: settle, repeat, and give the median with the spread."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of repeated calls."""

    median: float
    fastest: float
    slowest: float
    repeats: int


def measure(call: Callable[[], object], *, repeats: int = 5, warm_up: int = 1) -> Timing:
    """Time `call` alone, `repeats` times after `warm_up` calls that do not count.

    `call` must have finished its work when it returns: on a GPU it has to wait for the device.
    """
    assert repeats > 0, repeats
    for _ in range(warm_up):
        call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return Timing(statistics.median(seconds), min(seconds), max(seconds), repeats)
