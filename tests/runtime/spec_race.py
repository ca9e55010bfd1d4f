"""A race without a model: drafts that are right at a set rate, and passes that cost a set time."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from spec_scene import Pool

from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative import AdaptiveWindow, Speculation, TargetRows

Rate = Callable[[Sequence], float]


def truth(sequence: Sequence, ahead: list[int]) -> int:
    """The token that the target draws behind the sequence and these tokens."""
    whole = (*sequence.tokens, *ahead)
    return hash((sequence.sampling.seed, *whole[-6:])) % 500


class Guesser:
    """A proposer whose drafts are right at a given rate."""

    taps = ()

    def __init__(self, rate: Rate, name: str = "guess") -> None:
        self.kv_layers = {}
        self.rate = rate
        self.name = name
        self.released: list[Sequence] = []
        self.asked: list[list[int]] = []
        self._rng = random.Random(1)

    def observe(self, rows, batch, hidden, taps) -> None: ...

    def propose(self, sequences, counts) -> list[list[int]]:
        self.asked.append(list(counts))
        return [self._drafts(s, count) for s, count in zip(sequences, counts, strict=True)]

    def _drafts(self, sequence: Sequence, count: int) -> list[int]:
        drafts: list[int] = []
        for _ in range(count):
            right = self._rng.random() < self.rate(sequence)
            drafts.append((truth(sequence, drafts) + (not right)) % 500)
        return drafts

    def source(self, sequence: Sequence) -> str:
        return self.name

    def release(self, sequence: Sequence) -> None:
        self.released.append(sequence)


@dataclass
class Race:
    """Sequences that decode together, the clock, and what was tried."""

    speculation: Speculation
    sequences: list[Sequence]
    cost: Callable[[int], float] = lambda rows: 10 + rows
    draft_cost: float = 0.2
    seconds: float = 0.0
    windows: list[list[int]] = field(default_factory=list)

    def round(self, most: int) -> None:
        """Drafts, one pass, acceptance."""
        drafts = self.speculation.propose(self.sequences, [most] * len(self.sequences))
        self.windows.append([len(d) for d in drafts])
        drafted, rows = sum(map(len, drafts)), sum(len(d) + 1 for d in drafts)
        if drafted:
            self.speculation.observe_draft_cost(drafted, self.draft_cost * drafted)
        self.speculation.observe_cost(rows, self.cost(rows))
        self.seconds += self.cost(rows) + self.draft_cost * drafted
        seen, first = [], 0
        for s, tried in zip(self.sequences, drafts, strict=True):
            start, chosen = s.cached, [truth(s, [])]
            while len(chosen) <= len(tried) and chosen[-1] == tried[len(chosen) - 1]:
                chosen.append(truth(s, chosen))
            s.tokens.extend(chosen)
            s.cached += len(chosen)
            seen.append(TargetRows(s, start, first, len(chosen), s.tokens[-1]))
            first += len(tried) + 1
        self.speculation.observe(seen, None, None, [])

    def run(self, tokens: int, most: int = 5) -> float:
        """Seconds per token until every sequence has so many more."""
        before = sum(len(s.tokens) for s in self.sequences)
        seconds, goal = self.seconds, [len(s.tokens) + tokens for s in self.sequences]
        while any(len(s.tokens) < g for s, g in zip(self.sequences, goal, strict=True)):
            self.round(most)
        return (self.seconds - seconds) / (sum(len(s.tokens) for s in self.sequences) - before)


def race(rate: Rate, count: int = 1, *, adaptive: bool = True, **rest) -> Race:
    window = AdaptiveWindow() if adaptive else None
    made = [Pool(n).sequence([n, 1, 2, 3], 1, seed=n) for n in range(count)]
    for s in made:
        s.tokens.append(5)
        s.cached = 4
    return Race(Speculation(Guesser(rate), window), made, **rest)
