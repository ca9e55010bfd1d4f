"""Playing rounds by shape: replayed from CUDA graphs where these can be captured, else op by op."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from ninfer.log import get_logger
from ninfer.runtime.rounds.layout import Layout, RoundShape, layout_of, new_output

log = get_logger(__name__)

# Graphs that exist at once; the one that was not needed for longest makes place for another.
MOST_GRAPHS: Final = 64
# Runs of a shape before it is captured: kernels are compiled and loaded by the first.
_WARM_UP: Final = 1

Play = Callable[[Layout, Tensor], None]


@dataclass(frozen=True, slots=True)
class Played:
    """What a round gave, on the host."""

    rows: list[list[int]]  # [B, 2 W], as `play` writes them
    seconds: float | None  # that it took on its device; None where that says nothing of the next


class Flight(Protocol):
    """A round that has been started."""

    def land(self) -> Played:
        """Wait for it."""
        ...


class Player(Protocol):
    """Starts rounds; they run one after the other, in the order of other work on the device."""

    def start(self, shape: RoundShape) -> Flight:
        """Start a round of the first lanes."""
        ...

    def warm_up(self, shapes: Iterable[RoundShape]) -> None:
        """Make ready for these shapes, over lanes and caches that are nobody's."""
        ...

    @property
    def captured(self) -> int:
        """Graphs that exist."""
        ...

    @property
    def failure(self) -> str | None:
        """Why a shape could not be captured, after which none is."""
        ...


class _Landed:
    """A flight that was over before it was asked for."""

    def __init__(self, played: Played) -> None:
        self._played = played

    def land(self) -> Played:
        """See Flight."""
        return self._played


class EagerPlayer:
    """Rounds on a processor, each complete when `start` returns."""

    captured: int = 0
    failure: str | None = None

    def __init__(self, play: Play, device: torch.device) -> None:
        self.play = play
        self._device = device
        self._layouts: dict[RoundShape, Layout] = {}

    def start(self, shape: RoundShape) -> Flight:
        """See Player."""
        layout = self._layouts.get(shape)
        if layout is None:
            layout = self._layouts[shape] = layout_of(shape, self._device)
        out = new_output(shape, self._device)
        begin = time.perf_counter()
        self.play(layout, out)
        return _Landed(Played(out.tolist(), time.perf_counter() - begin))

    def warm_up(self, shapes: Iterable[RoundShape]) -> None:
        """Nothing gets faster by it."""


@dataclass(slots=True)
class _Known:
    """A shape that was met: its buffers, how often it ran, and its graph once there is one."""

    layout: Layout
    out: Tensor
    runs: int = 0
    graph: torch.cuda.CUDAGraph | None = None


class _CudaFlight:
    """A round under way on a card, with its result on the way to pinned memory."""

    def __init__(self, out: Tensor, events: tuple[torch.cuda.Event, torch.cuda.Event]) -> None:
        self._begin, self._end = events
        self._end.record()
        self._host = pinned(out)
        self._host.copy_(out, non_blocking=True)
        self._there = torch.cuda.Event()
        self._there.record()
        self.is_typical = True

    def land(self) -> Played:
        """See Flight."""
        self._there.synchronize()
        seconds = self._begin.elapsed_time(self._end) / 1e3 if self.is_typical else None
        return Played(self._host.tolist(), seconds)


class CudaPlayer:
    """Rounds on a card. A shape runs op by op first, then it is captured once and replayed.

    All graphs share one memory pool, since no two run at once. Where a capture fails the shape
    goes on op by op, to the same tokens, and the log says so.
    """

    def __init__(self, play: Play, device: torch.device, *, captures: bool) -> None:
        """Without `captures` every round runs op by op: ops that wait cannot be captured."""
        self._play = play
        self._device = device
        self._captures = captures
        self._known: OrderedDict[RoundShape, _Known] = OrderedDict()
        self._pool = torch.cuda.graph_pool_handle() if captures else None
        self.replays = 0
        self.failure: str | None = None

    @property
    def captured(self) -> int:
        """See Player."""
        # May be asked from another thread.
        return sum(known.graph is not None for known in list(self._known.values()))

    def start(self, shape: RoundShape) -> Flight:
        """See Player."""
        known = self._of(shape)
        if known.graph is None and self._captures and known.runs >= _WARM_UP:
            self._capture(known)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        is_typical = known.graph is not None or not self._captures
        if known.graph is not None:
            known.graph.replay()
            self.replays += 1
        else:
            self._play(known.layout, known.out)
        known.runs += 1
        flight = _CudaFlight(known.out, (begin, end))
        flight.is_typical = is_typical
        return flight

    def warm_up(self, shapes: Iterable[RoundShape]) -> None:
        """See Player: the first run of each shape, and its capture. Waits for the device."""
        for shape in shapes:
            known = self._of(shape)
            for _ in range(_WARM_UP):
                self._play(known.layout, known.out)
                known.runs += 1
            torch.cuda.synchronize(self._device)
            if self._captures:
                self._capture(known)
            if not self._captures:
                return

    def _of(self, shape: RoundShape) -> _Known:
        known = self._known.get(shape)
        if known is None:
            known = _Known(layout_of(shape, self._device), new_output(shape, self._device))
            self._known[shape] = known
            if len(self._known) > MOST_GRAPHS:
                # Work that still uses it is done before its memory can be used again.
                torch.cuda.synchronize(self._device)
                self._known.popitem(last=False)
        self._known.move_to_end(shape)
        return known

    def _capture(self, known: _Known) -> None:
        """Capture a shape's round; it does not run by this. After a failure none is captured."""
        graph = torch.cuda.CUDAGraph()
        # A stream of its own and this thread's calls only: others may copy media meanwhile.
        torch.cuda.synchronize(self._device)
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                self._play(known.layout, known.out)
        except RuntimeError as error:
            self._captures = False
            shape, self.failure = known.layout.shape, str(error).splitlines()[0]
            log.warning(
                "decode rounds run op by op from now on: the graph of %d sequences of %d rows "
                "could not be captured (%s); --no-cuda-graph says so from the start",
                shape.count,
                shape.width,
                self.failure,
            )
            return
        known.graph = graph


def pinned(like: Tensor) -> Tensor:
    """Host memory of the shape of a tensor, to which a card copies without anyone waiting."""
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)


def player_for(play: Play, device: torch.device, *, captures: bool) -> Player:
    """The player of a device."""
    if device.type == "cuda":
        return CudaPlayer(play, device, captures=captures)
    return EagerPlayer(play, device)
