"""Decode rounds as the host sees them: who takes part, what is started, what is taken in."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import torch

from ninfer.runtime.commit import advanced, cut_at_end
from ninfer.runtime.config import RuntimeConfig
from ninfer.runtime.requests import Progress
from ninfer.runtime.rounds.drafting import RoundDrafter
from ninfer.runtime.rounds.graphs import Flight, Played, Player, player_for
from ninfer.runtime.rounds.lanes import MOST_FLIGHTS
from ninfer.runtime.rounds.layout import RoundShape
from ninfer.runtime.rounds.play import RoundModel, play
from ninfer.runtime.rounds.rules import PlainReason, reason_of
from ninfer.runtime.rounds.sources import RoundSources
from ninfer.runtime.sampler import Drawn, not_finite
from ninfer.runtime.sequence import Sequence, Status
from ninfer.runtime.speculative import Speculation

# Rows of a round at most: beyond, products take another route, and drafts pay less and less.
MOST_ROWS: Final = 64
# Drafts for which there are graphs, besides the most that are allowed.
_DRAFTS: Final = (0, 1, 3, 7)
# Sequences up to which graphs are made when the engine starts.
_WARM_SEQUENCES: Final = 8


@dataclass(frozen=True, slots=True)
class _Passenger:
    """A sequence in a round under way, as it was then."""

    sequence: Sequence
    preemptions: int
    source: str
    drafts: int  # real ones

    @property
    def is_there(self) -> bool:
        """Whether it still runs, and has not run anew meanwhile."""
        sequence = self.sequence
        return sequence.status is Status.RUNNING and sequence.preemptions == self.preemptions


@dataclass(frozen=True, slots=True)
class _Round:
    """A round under way."""

    shape: RoundShape
    passengers: tuple[_Passenger, ...]  # by lane
    flight: Flight


class _Start(Enum):
    """What became of an attempt to start a round."""

    STARTED = auto()
    LATER = auto()  # the oldest round under way has to be taken in first
    NO_PAGES = auto()


class DecodeRounds:
    """Runs rounds of all decoding sequences on the device, and reads them one or more behind.

    While rounds are under way the host's view of a sequence lags: the device knows its anchor and
    frontier. A sequence that has ended meanwhile stays in rounds already started; what these give
    of it counts for nothing, and its pages and slot are written before anyone else's work on them.
    Before whatever is not a round all that is under way is taken in.
    """

    def __init__(
        self,
        model: RoundModel,
        runtime: RuntimeConfig,
        *,
        sources: RoundSources | None,
        speculation: Speculation | None,
        reserve: Callable[[Sequence, int], bool],
    ) -> None:
        """`reserve(sequence, n)` gives a sequence pages for n tokens, if nobody has to give way."""
        assert runtime.rounds is not None and runtime.rounds.ahead < MOST_FLIGHTS
        self.model = model
        self.reasons: Counter[PlainReason] = Counter()  # of steps that were no rounds
        self.played = 0
        self.waited_seconds = 0.0  # of the host for rounds
        self.device_seconds = 0.0  # of typical rounds that were taken in
        self._window = runtime.window
        self.ahead: Final = runtime.rounds.ahead
        self._sources = sources
        self._speculation = speculation
        self._reserve = reserve
        self._table = model.table
        self._lanes: dict[Sequence, int] = {}  # lanes of the table that are up to date
        self._behind = 0  # rounds that the drafter has yet to take in, of every lane
        self._rounds: deque[_Round] = deque()
        self.player: Player = player_for(
            lambda layout, out: play(self.model, layout, out),
            runtime.device,
            captures=runtime.rounds.captures,
        )
        self._slots = runtime.state_slots

    @property
    def under_way(self) -> int:
        """Rounds that have been started and not been taken in."""
        return len(self._rounds)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Run and capture the usual shapes before there are sequences."""
        self._table.settle()
        self.player.warm_up(self._usual())
        if self._drafter is not None and self._drafter.most_behind:
            self._drafter.catch_up(self._table.first(0), 0)

    def _usual(self) -> Iterator[RoundShape]:
        for count in range(1, min(self._slots, _WARM_SEQUENCES) + 1):
            for drafts in self._tiers(count):
                # Rounds with drafts of the host are captured when they are first met.
                if not drafts or self._drafter:
                    later = not drafts and self._drafter and self._drafter.most_behind
                    yield RoundShape(count, 1 + drafts, observes=not later)

    def obstacle(self, running: Items[Sequence]) -> PlainReason | None:
        """Why the next step cannot be a round of all running sequences; None when it can."""
        if not running:
            return PlainReason.NOBODY
        for sequence in running:
            if reason := reason_of(sequence):
                return reason
        if self._speculation is not None and self._sources is None:
            return PlainReason.PROPOSER
        if (drafter := self._drafter) is not None:
            joining = (s for s in running if s not in self._lanes)
            if not all(drafter.knows(s) for s in joining):
                return PlainReason.UNSEEN
        return None

    @torch.inference_mode()
    def advance(self, running: Items[Sequence]) -> list[Progress] | None:
        """Start what can be started and take in the oldest round; None if the step must be another.

        With None nothing is under way, and every sequence is as the host knows it.
        """
        reason = self.obstacle(running)
        while reason is None and len(self._rounds) <= self.ahead:
            started = self._start(running)
            if started is _Start.LATER:
                break
            if started is _Start.NO_PAGES:
                reason = PlainReason.PAGES
        if reason is None:
            return self._take_in(self._rounds.popleft())
        results = self._take_in(self._rounds.popleft()) if self._rounds else None
        assert not self._rounds
        self._leave()
        if results is None:
            self.reasons[reason] += 1
        return results

    def abandon(self) -> None:
        """Forget what is under way, after a round that failed."""
        self._rounds.clear()
        self._lanes, self._behind = {}, 0

    def _leave(self) -> None:
        """Let the drafter's proposer know what the drafter knows, and give up the lanes."""
        if self._drafter is not None:
            # A page of one that has ended may be another's by now.
            staying = [s for s in self._lanes if s.status is Status.RUNNING and s.decodes]
            self._seat(staying, [])
            self._catch_up()
            self._drafter.leave(staying)
        self._lanes, self._behind = {}, 0

    @property
    def _drafter(self) -> RoundDrafter | None:
        return self._sources.drafter if self._sources else None

    def _catch_up(self) -> None:
        """Let the drafter take in what it has left for later."""
        if self._behind and self._drafter is not None:
            self._drafter.catch_up(self._table.first(len(self._lanes)), self._behind)
        self._behind = 0

    def _defers(self, drafts: int) -> bool:
        """Whether the drafter leaves the rows of the next round for later; counts them if so."""
        most = self._drafter.most_behind if self._drafter else 0
        defers = most > 0 and not drafts
        if self._behind == most or not defers:
            self._catch_up()
        self._behind += defers
        return defers

    def _start(self, running: Items[Sequence]) -> "_Start":
        """Start a round of all who have not certainly ended."""
        live = {s: None for s in running if s.remaining > self._outstanding(s)}
        staying = [s for s in self._lanes if s in live]
        lanes = staying + [s for s in live if s not in self._lanes]
        if not lanes:
            return _Start.LATER
        names = [self._sources.name(s) if self._sources else "none" for s in lanes]
        drafts, limits = self._plan(lanes, names)
        looked_up = bool(drafts) and any(self._looks_up(s) for s in lanes)
        if looked_up and self._rounds:
            # The host drafts behind tokens that it knows.
            return _Start.LATER
        if not all(self._reserve(s, self._reach(s) + 1 + drafts) for s in lanes):
            return _Start.NO_PAGES
        self._seat(staying, lanes[len(staying) :])
        observes = not self._defers(drafts)
        shape = RoundShape(len(lanes), 1 + drafts, given=looked_up, observes=observes)
        if looked_up:
            assert self._sources is not None
            self._table.give(self._sources.looked_up(lanes, drafts), drafts)
        passengers = tuple(
            _Passenger(s, s.preemptions, name, min(limit, drafts))
            for s, name, limit in zip(lanes, names, limits, strict=True)
        )
        self._rounds.append(_Round(shape, passengers, self.player.start(shape)))
        self.played += 1
        return _Start.STARTED

    def _looks_up(self, sequence: Sequence) -> bool:
        return self._sources is not None and self._sources.looks_up(sequence)

    def _plan(self, lanes: Items[Sequence], names: Items[str]) -> tuple[int, list[int]]:
        """Drafts of every lane, and how many of each lane somebody would make."""
        if self._sources is None or self._speculation is None:
            return 0, [0] * len(lanes)
        room = max(s.remaining - self._outstanding(s) for s in lanes) - 1
        tiers = [n for n in self._tiers(len(lanes)) if n <= room]
        limits = [self._sources.limit(s, tiers[-1]) for s in lanes]
        wanted = self._speculation.plan_round(lanes, names, limits, tiers[-1])
        return next(n for n in tiers if n >= wanted), limits

    def _tiers(self, count: int) -> list[int]:
        """Numbers of drafts that rounds of so many sequences have, ascending; 0 is the first."""
        most = max(min(self._window - 1, MOST_ROWS // count - 1), 0)
        return sorted({most, *(n for n in _DRAFTS if n <= most)})

    def _outstanding(self, sequence: Sequence) -> int:
        """Rounds under way with a sequence in them: it gets a token or more of each."""
        return sum(
            passenger.sequence is sequence for one in self._rounds for passenger in one.passengers
        )

    def _reach(self, sequence: Sequence) -> int:
        """Tokens that a sequence may have cached once all rounds under way are over."""
        widths = (
            one.shape.width
            for one in self._rounds
            for passenger in one.passengers
            if passenger.sequence is sequence
        )
        return sequence.cached + sum(widths)

    def _seat(self, staying: Items[Sequence], joining: Items[Sequence]) -> None:
        """Give these sequences the first lanes: those that stay keep what the device knows."""
        if staying and len(staying) < len(self._lanes):
            self._table.keep([self._lanes[s] for s in staying])
        self._lanes = {s: lane for lane, s in enumerate(staying)}
        if joining:
            self._join(joining)
        self._table.add_pages(list(self._lanes))

    def _join(self, joining: Items[Sequence]) -> None:
        """Give these sequences the lanes behind those that are taken."""
        # What the others have left for later is not theirs.
        self._catch_up()
        first = len(self._lanes)
        self._table.write(first, joining)
        self._lanes |= {s: first + index for index, s in enumerate(joining)}
        for s in joining:
            s.drafts = []
            if self._speculation:
                self._speculation.forget_drafts(s)
        if self._drafter is not None:
            self._drafter.join(joining)

    def _take_in(self, one: _Round) -> list[Progress]:
        """Land a round, and commit what it gave to those who are still there."""
        begin = time.perf_counter()
        played = one.flight.land()
        self.waited_seconds += time.perf_counter() - begin
        self._measure(one, played)
        results = []
        for passenger, row in zip(one.passengers, played.rows, strict=True):
            if passenger.is_there:
                results.append(self._commit(passenger, one.shape.width, row))
        return results

    def _commit(self, passenger: _Passenger, width: int, row: list[int]) -> Progress:
        sequence, count = passenger.sequence, row[0]
        tokens, fed = row[1 : 1 + count], row[1 + width :]
        if tokens[-1] < 0:
            return Progress(sequence, (), error=not_finite(sequence, count - 1))
        cut, finish = cut_at_end(sequence, tuple(tokens))
        sequence.cached += len(cut)
        progress = advanced(sequence, cut, finish, Drawn(cut))
        if self._speculation:
            drafts = fed[: passenger.drafts]
            self._speculation.judge_round(sequence, passenger.source, drafts, len(cut))
        return progress

    def _measure(self, one: _Round, played: Played) -> None:
        if played.seconds is None:
            return
        self.device_seconds += played.seconds
        if self._speculation:
            drafts = one.shape.width - 1
            self._speculation.observe_round(one.shape.count, drafts, played.seconds)
