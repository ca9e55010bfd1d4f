"""Speculation: a proposer with the window of each sequence chosen, and every outcome counted."""

from collections import defaultdict
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from ninfer.models.forward_batch import ForwardBatch
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative.adaptive import AdaptiveWindow
from ninfer.runtime.speculative.counters import PositionCounts, SpeculationCounters
from ninfer.runtime.speculative.proposer import Proposer, TargetRows


@dataclass(frozen=True, slots=True)
class _Open:
    """Drafts that the next pass of a sequence judges."""

    frontier: int
    source: str
    drafts: tuple[int, ...]


class Speculation:
    """What the runtime calls: a Proposer around another one.

    Outcomes are read off the passes it observes, so nobody has to report them. With `window` None
    every round tries as many drafts as it may.
    """

    def __init__(self, proposer: Proposer, window: AdaptiveWindow | None = None) -> None:
        self.taps: Final = proposer.taps
        self.kv_layers: Final = proposer.kv_layers
        self.counters = SpeculationCounters()
        self.positions: defaultdict[str, PositionCounts] = defaultdict(PositionCounts)  # by source
        self.proposer: Final = proposer
        self._window = window
        self._open: dict[Sequence, _Open] = {}
        self._of: dict[Sequence, SpeculationCounters] = {}
        self._sources: set[str] = set()  # of the drafts of the last call

    def observe(
        self, rows: Items[TargetRows], batch: ForwardBatch, hidden: Tensor, taps: Items[Tensor]
    ) -> None:
        """Judge the drafts of the last round, then take in the pass; see Proposer."""
        for row in rows:
            tried = self._open.pop(row.sequence, None)
            if tried and row.kept and row.start == tried.frontier:
                self._judge(row, tried)
        self.proposer.observe(rows, batch, hidden, taps)

    def propose(self, sequences: Items[Sequence], counts: Items[int]) -> list[list[int]]:
        """Drafts for the next pass, at most `counts[i]` of sequence i; see Proposer."""
        sources = [self.source(s) for s in sequences]
        if self._window:
            counts = self._window.plan(sequences, sources, counts)
        drafts = self.proposer.propose(sequences, counts)
        for s, name, found in zip(sequences, sources, drafts, strict=True):
            self._open[s] = _Open(len(s.tokens) - 1, name, tuple(found))
        self._sources = {name for name, found in zip(sources, drafts, strict=True) if found}
        return drafts

    def source(self, sequence: Sequence) -> str:
        """What kind of drafts it would make now."""
        return self.proposer.source(sequence)

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence, known or not."""
        self._open.pop(sequence, None)
        self._of.pop(sequence, None)
        self.proposer.release(sequence)
        if self._window:
            self._window.release(sequence)

    @property
    def known(self) -> set[Sequence]:
        """Sequences that something is kept of here; after `release` none."""
        return {*self._open, *self._of}

    def counters_of(self, sequence: Sequence) -> SpeculationCounters:
        """Counts of one sequence so far; `release` drops them."""
        return self._of.get(sequence, SpeculationCounters())

    def forget_drafts(self, sequence: Sequence) -> None:
        """Drafts of the last call will not be tried."""
        self._open.pop(sequence, None)

    def plan_round(
        self, sequences: Items[Sequence], sources: Items[str], limits: Items[int], most: int
    ) -> int:
        """Drafts that each sequence of a device-side round should try, one number for all.

        At most `most`; of sequence i only the first `limits[i]` are real.
        """
        if self._window is None or not any(limits):
            return min(most, max(limits, default=0))
        return self._window.plan_round(sequences, sources, limits, most)

    def observe_round(self, sequences: int, drafts: int, seconds: float) -> None:
        """How long a device-side round with so many drafts each took, drafting included."""
        if self._window:
            self._window.observe_round(sequences, drafts, seconds)

    def judge_round(self, sequence: Sequence, source: str, drafts: Items[int], kept: int) -> None:
        """Count the outcome of a sequence's drafts in a device-side round of which `kept` rows,
        the anchor's included, stand; its tokens are in the sequence already."""
        start = sequence.cached - kept
        row = TargetRows(sequence, start, 0, kept, sequence.tokens[-1])
        self._judge(row, _Open(start, source, tuple(drafts)))

    def observe_cost(self, rows: int, seconds: float) -> None:
        """How long a pass took that had `rows` rows and no prefill piece."""
        if self._window:
            self._window.observe_cost(rows, seconds)

    def observe_draft_cost(self, drafts: int, seconds: float) -> None:
        """How long the last call of `propose` took, that gave `drafts` > 0 drafts in all."""
        if self._window and len(self._sources) == 1:
            (source,) = self._sources
            self._window.observe_draft_cost(source, drafts, seconds)

    def _judge(self, row: TargetRows, tried: _Open) -> None:
        right, drafted = min(row.kept - 1, len(tried.drafts)), len(tried.drafts)
        self.counters.add(drafted, right)
        self._of.setdefault(row.sequence, SpeculationCounters()).add(drafted, right)
        # A round that was cut, by a stop or for want of room, says nothing of the drafts behind.
        wrong = right < drafted and row.following != tried.drafts[right]
        if drafted:
            cut = right < drafted and not wrong
            judged = (right + 1, right + 1) if cut else (drafted, right)
            self.positions[tried.source].add(*judged)
        if self._window and (right or wrong):
            self._window.record(row.sequence, tried.source, right, then_wrong=wrong)
