"""One replica of the simulator: prompts in turn, decoding of all in step, a bounded prefix cache.

Decoding is kept as one number, the tokens that every running sequence has been given, so a request
costs two events however many tokens it has.
"""

import heapq
from collections import OrderedDict, deque
from typing import Final

from ninfer.cluster.costs import Costs

# Number of the request, its conversation, prompt tokens, answer tokens, arrival in seconds.
Job = tuple[int, int, int, int, float]
NEVER: Final = float("inf")


class SimulatedReplica:
    """Times are seconds; they may only grow from call to call."""

    __slots__ = (
        "_cache", "_cached", "_clock", "_costs", "_given", "_running", "_used", "_waiting",
        "due", "hit_tokens",
    )  # fmt: skip

    def __init__(self, costs: Costs) -> None:
        self._costs: Final = costs
        self._clock = 0.0  # until when the engine's time is spoken for
        self._given = 0.0  # tokens that a sequence would have which ran from the beginning
        self._running: list[tuple[float, int, Job, float]] = []
        self._waiting: deque[Job] = deque()
        self._cache: OrderedDict[int, int] = OrderedDict()
        self._cached = 0
        self._used = 0
        self.due = NEVER  # when the next answer ends
        self.hit_tokens = 0

    @property
    def waiting(self) -> int:
        """Requests without a place."""
        return len(self._waiting)

    def holds(self, conversation: int) -> bool:
        """Whether a prefix of the conversation is kept."""
        return conversation in self._cache

    def offer(self, now: float, job: Job) -> float:
        """A request arrives; gives when its first token comes, or NEVER while it waits."""
        if self._waiting or not self._fits(job):
            self._waiting.append(job)
            return NEVER
        return self._begin(now, job)

    def finish(self, now: float) -> tuple[Job, float, list[tuple[Job, float]]]:
        """The answer that is due ends. Its job and first token, and those that begin now."""
        self._advance(now)
        _, _, job, first = heapq.heappop(self._running)
        self._used -= job[2] + job[3]
        self._keep(job[1], job[2] + job[3])
        begun = []
        while self._waiting and self._fits(self._waiting[0]):
            waiting = self._waiting.popleft()
            begun.append((waiting, self._begin(now, waiting)))
        self._schedule()
        return job, first, begun

    def _fits(self, job: Job) -> bool:
        if not self._running:
            return True
        enough = self._used + job[2] + job[3] <= self._costs.kv_tokens
        return enough and len(self._running) < self._costs.places

    def _begin(self, now: float, job: Job) -> float:
        self._advance(now)
        number, conversation, prompt, answer, _ = job
        kept = min(self._cache.get(conversation, 0), prompt - 1)
        if kept:
            self._cache.move_to_end(conversation)
            self.hit_tokens += kept
        self._clock += self._costs.prefill(prompt - kept)
        self._used += prompt + answer
        heapq.heappush(self._running, (self._given + answer - 1, number, job, self._clock))
        self._trim()
        self._schedule()
        return self._clock

    def _advance(self, now: float) -> None:
        if now > self._clock:
            if self._running:
                self._given += (now - self._clock) / self._costs.step(len(self._running))
            self._clock = now

    def _schedule(self) -> None:
        if not self._running:
            self.due = NEVER
            return
        left = max(0.0, self._running[0][0] - self._given)
        self.due = self._clock + left * self._costs.step(len(self._running))

    def _keep(self, conversation: int, tokens: int) -> None:
        self._cached += tokens - self._cache.pop(conversation, 0)
        self._cache[conversation] = tokens
        self._trim()

    def _trim(self) -> None:
        """Prefixes yield to what runs, the longest unused ones first."""
        room = max(0, self._costs.kv_tokens - self._used)
        while self._cached > room and self._cache:
            self._cached -= self._cache.popitem(last=False)[1]
