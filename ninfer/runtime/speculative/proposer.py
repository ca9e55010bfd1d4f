"""Proposer: whatever guesses the tokens behind a sequence's newest one."""

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ninfer.models.forward_batch import ForwardBatch
from ninfer.ops.tensors import PagedKV
from ninfer.runtime.sequence import Sequence


@dataclass(frozen=True, slots=True)
class TargetRows:
    """What one pass of the target did for one sequence, after acceptance.

    `sequence.cached` is the committed frontier behind the pass, `start + kept`.
    """

    sequence: Sequence
    start: int  # position of its first row
    first_row: int  # that row's place among the T rows of the pass
    kept: int  # committed rows: all of a prefill piece, or the anchor and the accepted drafts
    following: int  # the token at position start + kept: the prompt's next, else the newest


class Proposer(Protocol):
    """Guesses tokens. It may be wrong at will: a draft counts only where the target draws it too.

    What it keeps of a sequence must depend on committed tokens alone, never on rejected drafts.
    """

    @property
    def taps(self) -> tuple[int, ...]:
        """Decoder layers, ascending, whose residual streams `observe` needs."""
        ...

    @property
    def kv_layers(self) -> Mapping[str, PagedKV]:
        """Its own layers by name; their pages have the indices of the decoder's."""
        ...

    def observe(
        self, rows: Items[TargetRows], batch: ForwardBatch, hidden: Tensor, taps: Items[Tensor]
    ) -> None:
        """Take in a pass of the target; called after each, for its sequences in row order.

        `hidden` [T, hidden] is final-normed, `taps` are [T, hidden] each. KV rows of drafter layers
        are written at the places of the kept rows.
        """
        ...

    def propose(self, sequences: Items[Sequence], counts: Items[int]) -> list[list[int]]:
        """Up to `counts[i]` drafts behind the newest token of sequence i; fewer is legal.

        Each sequence decodes: all its tokens but the newest have been observed. Its pages reach
        to position `cached + counts[i]`.
        """
        ...

    def source(self, sequence: Sequence) -> str:
        """What kind of drafts it would make now; their success is measured kind by kind."""
        ...

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence, known or not; after its last pass was observed."""
        ...


def until_unknown(drafts: Items[int]) -> list[int]:
    """The drafts before the first -1, by which heads say that their logits are not finite."""
    drafts = list(drafts)
    return drafts[: drafts.index(-1)] if -1 in drafts else drafts
