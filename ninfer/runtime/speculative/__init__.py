"""Speculation: who proposes drafts, how many are worth a try, and how often they were right."""

from ninfer.runtime.speculative.adaptive import AdaptiveWindow
from ninfer.runtime.speculative.block import (
    BlockProposer,
    best_tokens,
    tempered,
    untempered,
    walk,
)
from ninfer.runtime.speculative.caches import DrafterKind, drafter_caches
from ninfer.runtime.speculative.combined import CombinedProposer
from ninfer.runtime.speculative.counters import PositionCounts, SpeculationCounters
from ninfer.runtime.speculative.lookup import LookupProposer
from ninfer.runtime.speculative.mtp import MtpProposer
from ninfer.runtime.speculative.proposer import Proposer, TargetRows
from ninfer.runtime.speculative.speculation import Speculation

__all__ = [
    "AdaptiveWindow",
    "BlockProposer",
    "CombinedProposer",
    "DrafterKind",
    "LookupProposer",
    "MtpProposer",
    "PositionCounts",
    "Proposer",
    "Speculation",
    "SpeculationCounters",
    "TargetRows",
    "best_tokens",
    "drafter_caches",
    "tempered",
    "untempered",
    "walk",
]
