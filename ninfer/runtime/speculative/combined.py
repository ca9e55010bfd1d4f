"""Lookup where the text repeats itself at length, a model drafter everywhere else."""

from collections.abc import Sequence as Items
from typing import Final

from torch import Tensor

from ninfer.models.forward_batch import ForwardBatch
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative.lookup import LookupProposer
from ninfer.runtime.speculative.proposer import Proposer, TargetRows

# Equal tokens from which a repetition is a better guess than a drafter's.
LONG_MATCH: Final = 8


class CombinedProposer:
    """Lookup drafts behind a long match and where `drafter` has nothing, `drafter` elsewhere."""

    def __init__(
        self, drafter: Proposer, lookup: LookupProposer, *, long_match: int = LONG_MATCH
    ) -> None:
        self.taps: Final = drafter.taps
        self.kv_layers: Final = drafter.kv_layers
        self.drafter: Final = drafter
        self.lookup: Final = lookup
        self.long_match: Final = long_match

    def observe(
        self, rows: Items[TargetRows], batch: ForwardBatch, hidden: Tensor, taps: Items[Tensor]
    ) -> None:
        """Keep the drafter up to date, whoever drafts; see Proposer."""
        self.drafter.observe(rows, batch, hidden, taps)

    def propose(self, sequences: Items[Sequence], counts: Items[int]) -> list[list[int]]:
        """Drafts of one source for each sequence; see Proposer."""
        modelled = [
            0 if count and self._repeats(s) else count
            for s, count in zip(sequences, counts, strict=True)
        ]
        drafts = self.drafter.propose(sequences, modelled)
        left = [0 if found else count for found, count in zip(drafts, counts, strict=True)]
        looked_up = self.lookup.propose(sequences, left)
        return [own or other for own, other in zip(drafts, looked_up, strict=True)]

    def source(self, sequence: Sequence) -> str:
        """The source of the lookup or of the drafter, whichever comes first."""
        first: Proposer = self.lookup if self._repeats(sequence) else self.drafter
        return first.source(sequence)

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence in both."""
        self.drafter.release(sequence)
        self.lookup.release(sequence)

    def _repeats(self, sequence: Sequence) -> bool:
        return self.lookup.match(sequence).length >= self.long_match
