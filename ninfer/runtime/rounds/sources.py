"""Who drafts in device-side rounds: a drafter on the device, prompt lookup on the host, or both."""

from collections.abc import Sequence as Items
from dataclasses import dataclass

from ninfer.runtime.config import RuntimeConfig
from ninfer.runtime.rounds.drafting import BlockDrafter, MtpDrafter, RoundDrafter
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative.block import BlockProposer
from ninfer.runtime.speculative.combined import CombinedProposer
from ninfer.runtime.speculative.lookup import LookupProposer
from ninfer.runtime.speculative.mtp import MtpProposer
from ninfer.runtime.speculative.proposer import Proposer


@dataclass(frozen=True, slots=True)
class RoundSources:
    """The device's drafter, and lookup where the newest `long_match` tokens stood before."""

    drafter: RoundDrafter | None = None
    lookup: LookupProposer | None = None
    long_match: int = 1

    def looks_up(self, sequence: Sequence) -> bool:
        """Whether the host drafts for a sequence, which it can only do behind known tokens."""
        return self.lookup is not None and self.lookup.match(sequence).length >= self.long_match

    def name(self, sequence: Sequence) -> str:
        """What the sequence's drafts are counted under."""
        if self.lookup is not None and (self.drafter is None or self.looks_up(sequence)):
            return self.lookup.source(sequence)
        return "none" if self.drafter is None else self.drafter.source

    def limit(self, sequence: Sequence, most: int) -> int:
        """Drafts that somebody would make for a sequence."""
        return most if self.drafter is not None or self.looks_up(sequence) else 0

    def looked_up(self, sequences: Items[Sequence], count: int) -> list[list[int]]:
        """Drafts of the host; empty for sequences that are the drafter's."""
        assert self.lookup is not None
        wanted = [count if self.looks_up(s) else 0 for s in sequences]
        return self.lookup.propose(sequences, wanted)


def sources_of(proposer: Proposer, runtime: RuntimeConfig, hidden: int) -> RoundSources | None:
    """The sources of a proposer of the package; None for one that only drafts on the host.

    `hidden` is the width of the target's states.
    """
    if isinstance(proposer, LookupProposer):
        return RoundSources(lookup=proposer)
    if isinstance(proposer, CombinedProposer):
        drafter = _drafter(proposer.drafter, runtime, hidden)
        if drafter is None:
            return None
        return RoundSources(drafter, proposer.lookup, proposer.long_match)
    drafter = _drafter(proposer, runtime, hidden)
    return RoundSources(drafter) if drafter else None


def _drafter(proposer: Proposer, runtime: RuntimeConfig, hidden: int) -> RoundDrafter | None:
    if isinstance(proposer, MtpProposer):
        return MtpDrafter(proposer, runtime, hidden)
    if isinstance(proposer, BlockProposer) and proposer.tempered is not None:
        return BlockDrafter(proposer, proposer.tempered)
    return None
