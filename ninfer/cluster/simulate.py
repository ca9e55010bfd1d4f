"""A discrete-event simulation of many replicas under a trace: an event for each arrival and end."""

import heapq
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt

from ninfer.cluster.choice import AFFINITY, LEAST, Loads
from ninfer.cluster.costs import Costs
from ninfer.cluster.simulated_replica import NEVER, Job, SimulatedReplica
from ninfer.cluster.trace import Trace

# Rows of the trace that become Python numbers at once.
_BLOCK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated run gave; arrays are by request, in the order of the trace."""

    first_seconds: npt.NDArray[np.float64]  # [R] from arrival to the first token
    token_seconds: npt.NDArray[np.float64]  # [R] between tokens, mean of the answer; 0 for one
    seconds: float  # from the first arrival to the last end
    answer_tokens: int
    hit_rate: float  # tokens of prompts that were kept
    returns: int  # requests of conversations that had been somewhere
    away: int  # of these, sent elsewhere than to where the conversation was last
    most_waiting: int  # at one replica, at any time

    @property
    def tokens_per_second(self) -> float:
        """Tokens of answers by time, all replicas together."""
        return self.answer_tokens / self.seconds if self.seconds else 0.0

    def first_at(self, percent: float) -> float:
        """Percentile of the time to the first token."""
        return float(np.percentile(self.first_seconds, percent))

    def token_at(self, percent: float) -> float:
        """Percentile of the time between tokens."""
        return float(np.percentile(self.token_seconds, percent))


def simulate(trace: Trace, costs: Costs, replicas: int, routing: str, seed: int = 0) -> Outcome:
    """Play a trace of one request or more. The same arguments give the same outcome."""
    run = _Run(trace, costs, replicas, routing, seed)
    run.play()
    return run.outcome()


class _Run:
    def __init__(self, trace: Trace, costs: Costs, replicas: int, routing: str, seed: int) -> None:
        self._trace = trace
        self._replicas = [SimulatedReplica(costs) for _ in range(replicas)]
        self._loads = Loads(replicas, costs.places)
        self._routing = routing
        self._random = Random(seed)
        conversations = int(trace.conversations.max()) + 1
        self._home: list[int] = [-1] * conversations
        self._busy = bytearray(conversations)
        self._later: dict[int, deque[Job]] = {}
        self._first = array("d", bytes(8 * len(trace)))
        self._token = array("d", bytes(8 * len(trace)))
        # When each replica has to be looked at, and the same as a heap; entries that are too early
        # are put back when they come up.
        self._noted = [NEVER] * replicas
        self._events: list[tuple[float, int]] = []
        self._end = 0.0
        self._returns = self._away = self._most_waiting = 0

    def play(self) -> None:
        for job in self._jobs():
            self._until(job[4])
            if self._busy[job[1]]:
                self._later.setdefault(job[1], deque()).append(job)
            else:
                self._arrive(job[4], job)
        self._until(NEVER)

    def outcome(self) -> Outcome:
        prompts = int(self._trace.prompts.sum())
        return Outcome(
            np.frombuffer(self._first),
            np.frombuffer(self._token),
            self._end - float(self._trace.arrivals[0]),
            int(self._trace.answers.sum()),
            sum(replica.hit_tokens for replica in self._replicas) / prompts,
            self._returns,
            self._away,
            self._most_waiting,
        )

    def _jobs(self) -> Iterator[Job]:
        trace = self._trace
        for start in range(0, len(trace), _BLOCK):
            part = slice(start, start + _BLOCK)
            columns = (trace.conversations, trace.prompts, trace.answers, trace.arrivals)
            rows = zip(*(column[part].tolist() for column in columns), strict=True)
            for number, row in enumerate(rows, start):
                yield (number, *row)

    def _until(self, now: float) -> None:
        """All answers that end before `now`."""
        events = self._events
        while events and events[0][0] <= now:
            at, number = heapq.heappop(events)
            if at != self._noted[number]:
                continue
            due = self._replicas[number].due
            if due <= at:
                self._finish(at, number)
                due = self._replicas[number].due
            self._note(number, due)

    def _note(self, number: int, due: float) -> None:
        self._noted[number] = due
        if due != NEVER:
            heapq.heappush(self._events, (due, number))

    def _finish(self, now: float, number: int) -> None:
        job, first, begun = self._replicas[number].finish(now)
        self._loads.give(number)
        self._end = now
        if job[3] > 1:
            self._token[job[0]] = (now - first) / (job[3] - 1)
        for started, at in begun:
            self._first[started[0]] = at - started[4]
        conversation = job[1]
        self._busy[conversation] = 0
        later = self._later.get(conversation)
        if later:
            following = later.popleft()
            if not later:
                del self._later[conversation]
            # It could not be asked before the answer was there.
            self._arrive(now, (*following[:4], now))

    def _arrive(self, now: float, job: Job) -> None:
        conversation = job[1]
        number = self._choose(conversation)
        self._home[conversation] = number
        self._busy[conversation] = 1
        self._loads.take(number)
        replica = self._replicas[number]
        first = replica.offer(now, job)
        if first == NEVER:
            self._most_waiting = max(self._most_waiting, replica.waiting)
            return
        self._first[job[0]] = first - now
        if replica.due < self._noted[number]:
            self._note(number, replica.due)

    def _choose(self, conversation: int) -> int:
        home = self._home[conversation]
        if self._routing == AFFINITY:
            chosen = self._loads.choose(home if home >= 0 else None)
        elif self._routing == LEAST:
            chosen = self._loads.least()
        else:
            chosen = self._random.randrange(len(self._replicas))
        if home >= 0:
            self._returns += 1
            self._away += chosen != home
        return chosen
