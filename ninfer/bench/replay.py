"""Times on a card: a CUDA graph of calls, replayed, measured by events."""

import statistics
import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Final

import torch

from ninfer.bench.timer import Timing

REPEATS: Final = 15
_LEAST_S: Final = 1e-3
_SETTLE_S: Final = 0.02
# Weights that calls rotate over, so that none is still in a last-level cache when its turn comes.
ROTATED_BYTES: Final = 450_000_000


def copies_for(size: int) -> int:
    """How many copies of `size` bytes push each other out of every cache."""
    return max(-(-ROTATED_BYTES // size), 1)


def captured(calls: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """A graph that makes the calls in order; they run once before, outside of it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for call in calls:
            call()
    return graph


def replayed(
    calls: Sequence[Callable[[], object]],
    per: int | None = None,
    *,
    repeats: int = REPEATS,
    settle_s: float = _SETTLE_S,
) -> Timing:
    """Seconds of one of `per` equal parts of the calls (default: of one call), from replays.

    Short calls stand in the graph so often that its start does not count, and replays begin to
    count when the card has been at work for long enough to have its clocks up.
    """
    graph, parts = captured(calls), per or len(calls)
    times = ceil(_LEAST_S / min(_seconds(graph) for _ in range(2)))
    if times > 1:
        graph, parts = captured(list(calls) * times), parts * times
    settled = time.perf_counter() + settle_s
    while time.perf_counter() < settled:
        _seconds(graph)
    seconds = [_seconds(graph) / parts for _ in range(repeats)]
    return Timing(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


def _seconds(graph: torch.cuda.CUDAGraph) -> float:
    """One replay, from event to event."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
