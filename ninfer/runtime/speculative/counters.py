"""Counts of speculation: rounds, drafts, and how many were right at which place, by source."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class SpeculationCounters:
    """Of one sequence or of all. `accepted_per_position[i]` counts accepted drafts number i."""

    rounds: int = 0  # passes with drafts
    fallback_steps: int = 0  # decode passes without any
    drafted: int = 0
    accepted: int = 0
    accepted_per_position: list[int] = field(default_factory=list)

    def add(self, drafted: int, accepted: int) -> None:
        """Count one decode pass."""
        if not drafted:
            self.fallback_steps += 1
            return
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        missing = accepted - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * missing)
        for index in range(accepted):
            self.accepted_per_position[index] += 1


@dataclass(slots=True)
class PositionCounts:
    """Of one source of drafts, by their number in the round: how many were judged and accepted.

    A draft is accepted when it and all before it equal the target's tokens. A draft behind the end
    of its sequence is not judged; one that equals the last token is accepted, though no pass was
    saved by it.
    """

    judged: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def add(self, judged: int, accepted: int) -> None:
        """Count one round, of whose drafts the first ones were judged and accepted."""
        missing = [0] * (judged - len(self.judged))
        self.judged += missing
        self.accepted += missing
        for index in range(judged):
            self.judged[index] += 1
            self.accepted[index] += index < accepted
