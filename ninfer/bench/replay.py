"""Times on a card: a CUDA graph of calls, replayed, measured by events."""

import statistics
from collections.abc import Callable, Sequence
from typing import Final

import torch

from ninfer.bench.timer import Timing

REPEATS: Final = 15
_WARM_UP: Final = 3
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


def replayed(calls: Sequence[Callable[[], object]], per: int | None = None) -> Timing:
    """Seconds of one of `per` equal parts of the calls (default: of one call), from replays."""
    graph = captured(calls)
    parts = per or len(calls)
    seconds = []
    for turn in range(_WARM_UP + REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if turn >= _WARM_UP:
            seconds.append(begin.elapsed_time(end) / 1e3 / parts)
    return Timing(statistics.median(seconds), min(seconds), max(seconds), len(seconds))
