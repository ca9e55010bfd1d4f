"""Drafts from the sequence's own text: what followed when its newest tokens stood there before."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Final

from torch import Tensor

from ninfer.models.forward_batch import ForwardBatch
from ninfer.ops.tensors import PagedKV
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative.proposer import TargetRows

# Fewer equal tokens than this are no match; a longer one than the other is as good as that.
SHORTEST: Final = 3
LONGEST: Final = 32
# Earlier places that are compared, newest first.
_TRIED: Final = 16


@dataclass(frozen=True, slots=True)
class Match:
    """The newest `length` tokens stood before position `end` too; 0 when there is no match."""

    length: int = 0
    end: int = 0


@dataclass(slots=True)
class _Index:
    """Where each run of SHORTEST tokens ends in one sequence: the last place, and links back."""

    newest: dict[tuple[int, ...], int] = field(default_factory=dict)
    previous: list[int] = field(default_factory=list)  # of the run that ends at a position, or 0
    match: Match = field(default_factory=Match)

    def extend(self, tokens: Items[int]) -> None:
        """Take in the tokens that are new, and find the match of the newest ones."""
        if len(self.previous) == len(tokens) + 1:
            return
        if not self.previous:
            self.previous.append(0)
        for end in range(len(self.previous), len(tokens) + 1):
            before = 0
            if end >= SHORTEST:
                run = tuple(tokens[end - SHORTEST : end])
                before = self.newest.get(run, 0)
                self.newest[run] = end
            self.previous.append(before)
        self.match = self._longest(tokens)

    def _longest(self, tokens: Items[int]) -> Match:
        best, end = Match(), self.previous[-1]
        for _ in range(_TRIED):
            if not end:
                break
            length = _common(tokens, end)
            if length > best.length:
                best = Match(length, end)
            if length == LONGEST:
                break
            end = self.previous[end]
        return best


class LookupProposer:
    """Longest earlier occurrence of the newest tokens, the most recent of equals.

    Taking in a token and finding a match take a bounded number of steps, however long the text.
    """

    taps: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.kv_layers: Final[dict[str, PagedKV]] = {}
        self._indices: dict[Sequence, _Index] = {}

    def match(self, sequence: Sequence) -> Match:
        """How much of the sequence's end stood where before, up to LONGEST tokens."""
        index = self._indices.get(sequence)
        if index is None:
            index = self._indices[sequence] = _Index()
        index.extend(sequence.tokens)
        return index.match

    def observe(
        self, rows: Items[TargetRows], batch: ForwardBatch, hidden: Tensor, taps: Items[Tensor]
    ) -> None:
        """Nothing: tokens are read from the sequences."""

    def propose(self, sequences: Items[Sequence], counts: Items[int]) -> list[list[int]]:
        """What followed the match; a match that overlaps the end is taken as a period."""
        return [
            _followers(s.tokens, self.match(s), count) if count > 0 else []
            for s, count in zip(sequences, counts, strict=True)
        ]

    def source(self, sequence: Sequence) -> str:
        """Always "lookup"."""
        return "lookup"

    def release(self, sequence: Sequence) -> None:
        """Drop a sequence's index, if there is one."""
        self._indices.pop(sequence, None)


def _common(tokens: Items[int], end: int) -> int:
    """How many tokens before `end` equal those before the end of all, up to LONGEST."""
    most = min(end, LONGEST)
    distance = len(tokens) - end
    for length in range(most):
        at = end - 1 - length
        if tokens[at] != tokens[at + distance]:
            return length
    return most


def _followers(tokens: Items[int], match: Match, count: int) -> list[int]:
    if not match.length:
        return []
    drafts: list[int] = []
    for at in range(match.end, match.end + count):
        drafts.append(tokens[at] if at < len(tokens) else drafts[at - len(tokens)])
    return drafts
