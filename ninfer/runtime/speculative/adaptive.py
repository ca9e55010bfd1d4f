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
# Expected tokens below which a further draft is not looked at.
_LEAST_TOKENS: Final = 0.02
# Drafts have to promise this much more tokens per second; below it they are noise.
_LEAST_GAIN: Final = 1.02
# A sequence that speculation slows down tries again after so many rounds, then twice as many.
_REST: Final = 16
_LONGEST_REST: Final = 512
_PROBE: Final = 2
# Seconds that nothing takes less than, so that rates stay finite.
_NO_TIME: Final = 1e-9
# Plans after which a pass without drafts is measured again, and the first time.
_REFRESH: Final = 128
_FIRST_REFRESH: Final = 4


@dataclass(slots=True)
class _History:
    """One sequence with one source of drafts."""

    acceptance: Acceptance = field(default_factory=Acceptance)
    idle: int = 0
    rest: int = _REST


@dataclass(frozen=True, slots=True)
class _Try:
    """What a sequence may try in one round."""

    history: _History
    source: str
    limit: int


class AdaptiveWindow:
    """Chooses the drafts of a round that promise most tokens per second for all its sequences.

    A sequence with acceptance rates a_1, a_2, ... gains a_1 a_2 .. a_i expected tokens by its i-th
    draft. Drafts are taken in the order of that gain, and the best count of them is the one with
    the largest (sequences + gains) / (cost of the rows + cost of drafting, source by source).
    """

    def __init__(self) -> None:
        self._passes = CostCurve()
        self._drafting: dict[str, CostCurve] = {}
        self._histories: dict[Sequence, dict[str, _History]] = defaultdict(dict)
        self._overall: dict[str, Acceptance] = defaultdict(Acceptance)
        self._rounds: dict[int, CostCurve] = defaultdict(CostCurve)
        self._plans = 0
        self._refreshed: dict[int, int] = {}

    def observe_cost(self, rows: int, seconds: float) -> None:
        """A pass over `rows` rows took that long; only passes without prefill pieces count."""
        self._passes.add(rows, seconds)

    def observe_draft_cost(self, source: str, drafts: int, seconds: float) -> None:
        """Proposing `drafts` > 0 drafts, all from one source, took that long."""
        self._curve(source).add(drafts, seconds)

    def observe_round(self, sequences: int, drafts: int, seconds: float) -> None:
        """A device-side round of so many sequences and drafts each took that long, all in all."""
        self._rounds[sequences].add(1 + drafts, seconds)

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
        if not self._passes.is_known:
            return list(limits)
        tries = [
            _Try(self._history(s, source), source, limit)
            for s, source, limit in zip(sequences, sources, limits, strict=True)
        ]
        counts = self._best(tries)
        if any(counts) and self._must_refresh(len(sequences)):
            return [0] * len(counts)
        resting = [_rests(one, count) for one, count in zip(tries, counts, strict=True)]
        if any(resting):
            hopes = self._best(tries, hope=1.0)
            for index, (one, hoped) in enumerate(zip(tries, hopes, strict=True)):
                if resting[index] and _may_probe(one.history, hoped):
                    counts[index] = min(_PROBE, one.limit)
        return counts

    def plan_round(
        self, sequences: Items[Sequence], sources: Items[str], limits: Items[int], most: int
    ) -> int:
        """Drafts that every sequence of a device-side round should try, 0..most.

        Sequence i can only gain by its first `limits[i]`. The best count has the largest expected
        tokens per second, by what rounds of so many sequences took.
        """
        self._plans += 1
        curve = self._rounds[len(sequences)]
        if not curve.is_known:
            return most
        tries = [
            _Try(self._history(s, source), source, min(limit, most))
            for s, source, limit in zip(sequences, sources, limits, strict=True)
        ]
        count = self._best_round(tries, curve, most)
        if count and self._must_refresh(-len(sequences)):
            return 0
        resting = [_rests(one, count) for one in tries]
        if any(resting):
            hoped = self._best_round(tries, curve, most, hope=1.0)
            probing = [
                _may_probe(one.history, hoped)
                for one, rests in zip(tries, resting, strict=True)
                if rests
            ]
            if any(probing):
                return min(_PROBE, most)
        return count

    def _best_round(
        self, tries: Items[_Try], curve: CostCurve, most: int, hope: float = 0.0
    ) -> int:
        tokens, costs = float(len(tries)), curve.between(1, 1 + most)
        least, best = _LEAST_GAIN * tokens / max(costs[0], _NO_TIME), 0
        chances = [self._chances(one, hope) for one in tries]
        for count in range(1, most + 1):
            tokens += sum(of[count - 1] for of in chances if count <= len(of))
            speed = tokens / max(costs[count], _NO_TIME)
            if speed > least:
                least, best = speed, count
        return best

    def _chances(self, one: _Try, hope: float) -> list[float]:
        """For each of a sequence's drafts the chance that it and all before it are right."""
        (prior,) = self._overall[one.source].rates(1, _FIRST_RATE)
        reached, found = 1.0, []
        for rate in one.history.acceptance.rates(one.limit, prior, hope):
            reached *= rate
            found.append(reached)
        return found

    def _best(self, tries: Items[_Try], hope: float = 0.0) -> list[int]:
        """The best count of drafts for each; `hope` as in `Acceptance.rates`."""
        gains = self._gains(tries, hope)
        passes, drafting = self._costs(tries, gains)
        base = len(tries)
        tokens, least = float(base), _LEAST_GAIN * base / max(passes[0], _NO_TIME)
        drafted = dict.fromkeys(drafting, 0)
        spent, best_count = 0.0, 0
        for count, (gain, index) in enumerate(gains, start=1):
            source = tries[index].source
            curve, before = drafting[source], drafted[source]
            spent += curve[before + 1] - curve[before]
            drafted[source] = before + 1
            tokens += gain
            speed = tokens / max(passes[count] + spent, _NO_TIME)
            if speed > least:
                least, best_count = speed, count
        counts = [0] * base
        for _, index in gains[:best_count]:
            counts[index] += 1
        return counts

    def _costs(
        self, tries: Items[_Try], gains: Items[tuple[float, int]]
    ) -> tuple[list[float], dict[str, list[float]]]:
        """Seconds of passes with 0, 1, .. drafts in all, and of drafting so many, by source."""
        base, most = len(tries), len(gains)
        sources = dict.fromkeys(one.source for one in tries)
        drafting = {source: self._curve(source).between(0, most) for source in sources}
        return self._passes.between(base, base + most), drafting

    def _gains(self, tries: Items[_Try], hope: float) -> list[tuple[float, int]]:
        """Expected tokens of each further draft and whose it is, the largest first."""
        gains: list[tuple[float, int]] = []
        for index, one in enumerate(tries):
            for reached in self._chances(one, hope):
                if reached < _LEAST_TOKENS:
                    break
                gains.append((reached, index))
        gains.sort(key=lambda gain: -gain[0])
        return gains

    def _must_refresh(self, base: int) -> bool:
        """Whether the cost of a pass without drafts is unknown or old; then this round measures."""
        last = self._refreshed.get(base, _FIRST_REFRESH - _REFRESH)
        if self._plans - last < _REFRESH:
            return False
        self._refreshed[base] = self._plans
        return True

    def _curve(self, source: str) -> CostCurve:
        return self._drafting.setdefault(source, CostCurve(from_nothing=True))

    def _history(self, sequence: Sequence, source: str) -> _History:
        return self._histories[sequence].setdefault(source, _History())


def _rests(one: _Try, count: int) -> bool:
    """Count a round; whether it is one in which a sequence without drafts might try some."""
    history = one.history
    if count:
        history.idle, history.rest = 0, _REST
    if count or not one.limit:
        return False
    history.idle += 1
    return history.idle % _REST == 0


def _may_probe(history: _History, hoped: int) -> bool:
    """Whether to try some drafts: where slightly better luck would make them pay, or after a rest
    that gets longer and longer.
    """
    if not hoped and history.idle < history.rest:
        return False
    history.idle, history.rest = 0, _REST if hoped else min(2 * history.rest, _LONGEST_REST)
    return True
