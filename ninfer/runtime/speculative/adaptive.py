"""How many drafts each sequence should try next, from measured costs and past success.

Deterministic: the same calls give the same windows. Windows decide what is tried, not what is true,
so they cannot change a token.
"""

from collections import defaultdict
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Final

from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative.acceptance import Acceptance
from ninfer.runtime.speculative.costs import CostCurve

# Of a draft before any was tried.
_FIRST_RATE: Final = 0.7
# Drafts have to promise this much more tokens per second; below it they are noise.
_LEAST_GAIN: Final = 1.02
# A sequence that speculation slows down tries again after so many rounds, then twice as many.
_FIRST_REST: Final = 16
_LONGEST_REST: Final = 512
_PROBE: Final = 2
# Plans after which a pass without drafts is measured again, and the first time.
_REFRESH: Final = 128
_FIRST_REFRESH: Final = 4


@dataclass(slots=True)
class _History:
    """One sequence with one source of drafts."""

    acceptance: Acceptance = field(default_factory=Acceptance)
    idle: int = 0
    rest: int = _FIRST_REST


class AdaptiveWindow:
    """Chooses the drafts of a round that promise most tokens per second for all its sequences.

    A sequence with acceptance rates a_1, a_2, ... gains a_1 a_2 .. a_i expected tokens by its i-th
    draft. Drafts are taken in the order of that gain, and the best count of them is the one with
    the largest (sequences + gains) / (cost of the rows + cost of drafting).
    """

    def __init__(self) -> None:
        self._passes = CostCurve()
        self._drafting = CostCurve(from_nothing=True)
        self._histories: dict[Sequence, dict[str, _History]] = defaultdict(dict)
        self._overall: dict[str, Acceptance] = defaultdict(Acceptance)
        self._plans = 0
        self._refreshed: dict[int, int] = {}

    def observe_cost(self, rows: int, seconds: float) -> None:
        """A pass over `rows` rows took that long; only passes without prefill pieces count."""
        self._passes.add(rows, seconds)

    def observe_draft_cost(self, drafts: int, seconds: float) -> None:
        """Proposing `drafts` > 0 drafts for all sequences of a round took that long."""
        self._drafting.add(drafts, seconds)

    def record(self, sequence: Sequence, source: str, right: int, *, then_wrong: bool) -> None:
        """A block's first `right` drafts were accepted and, if `then_wrong`, the next was not."""
        for acceptance in (self._history(sequence, source).acceptance, self._overall[source]):
            acceptance.add(right, then_wrong=then_wrong)

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence, known or not."""
        self._histories.pop(sequence, None)

    def plan(
        self, sequences: Items[Sequence], sources: Items[str], limits: Items[int]
    ) -> list[int]:
        """Drafts that each sequence should try from its source, at most `limits[i]`."""
        if not sequences:
            return []
        self._plans += 1
        histories = [self._history(s, name) for s, name in zip(sequences, sources, strict=True)]
        if not self._passes.is_known:
            return list(limits)
        counts = self._best(histories, sources, limits)
        if any(counts) and self._must_refresh(len(sequences)):
            return [0] * len(counts)
        if all(counts):
            return counts
        hopes = self._best(histories, sources, limits, hope=1.0)
        choices = zip(histories, counts, hopes, limits, strict=True)
        return [_or_probe(*choice) for choice in choices]

    def _best(
        self,
        histories: Items[_History],
        sources: Items[str],
        limits: Items[int],
        hope: float = 0.0,
    ) -> list[int]:
        gains: list[tuple[float, int]] = []
        for index, (history, limit) in enumerate(zip(histories, limits, strict=True)):
            (prior,) = self._overall[sources[index]].rates(1, _FIRST_RATE)
            reached = 1.0
            for rate in history.acceptance.rates(limit, prior, hope):
                reached *= rate
                gains.append((reached, index))
        gains.sort(key=lambda gain: -gain[0])
        base = len(limits)
        tokens, least = float(base), _LEAST_GAIN * base / max(self._passes.at(base), 1e-9)
        best_count = 0
        for count, (gain, _) in enumerate(gains, start=1):
            tokens += gain
            seconds = self._passes.at(base + count) + self._drafting.at(count)
            speed = tokens / max(seconds, 1e-9)
            if speed > least:
                least, best_count = speed, count
        counts = [0] * base
        for _, index in gains[:best_count]:
            counts[index] += 1
        return counts

    def _must_refresh(self, base: int) -> bool:
        """Whether the cost of a pass without drafts is unknown or old; then this round measures."""
        last = self._refreshed.get(base, _FIRST_REFRESH - _REFRESH)
        if self._plans - last < _REFRESH:
            return False
        self._refreshed[base] = self._plans
        return True

    def _history(self, sequence: Sequence, source: str) -> _History:
        return self._histories[sequence].setdefault(source, _History())


def _or_probe(history: _History, count: int, hoped: int, limit: int) -> int:
    """The planned drafts, or a few for a sequence that has had none for long enough.

    It rests longer and longer, but not while slightly better luck would make drafts pay.
    """
    if hoped:
        history.rest = _FIRST_REST
    if count or not limit:
        history.idle = 0
        return count
    history.idle += 1
    if history.idle < history.rest:
        return 0
    history.idle, history.rest = 0, min(2 * history.rest, _LONGEST_REST)
    return min(_PROBE, limit)
