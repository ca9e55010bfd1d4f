"""How many drafts of speculation were right: by task, source and number in the round."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any, Final

OVERALL: Final = "all"


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Of one source: `judged[i]` drafts number i were compared, `accepted[i]` of them taken."""

    judged: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()

    def plus(self, other: "DraftCounts", sign: int = 1) -> "DraftCounts":
        """Counts of both, or with -1 the counts since `other`."""
        return DraftCounts(
            _sums(self.judged, other.judged, sign), _sums(self.accepted, other.accepted, sign)
        )


def _sums(one: Sequence[int], other: Sequence[int], sign: int) -> tuple[int, ...]:
    return tuple(a + sign * b for a, b in zip_longest(one, other, fillvalue=0))


@dataclass(frozen=True, slots=True)
class TaskAcceptance:
    """Of one task: its answers' tokens, the decode passes that they took, drafts by source.

    A token of a prefill pass, the first of each answer, is not among `tokens`.
    """

    task: str
    tokens: int = 0
    passes: int = 0
    sources: Mapping[str, DraftCounts] = field(default_factory=dict)

    def plus(self, other: "TaskAcceptance", sign: int = 1) -> "TaskAcceptance":
        """This task's counts with the other's added, or with -1 those since the other."""
        names = dict.fromkeys((*self.sources, *other.sources))
        none = DraftCounts()
        return TaskAcceptance(
            self.task,
            self.tokens + sign * other.tokens,
            self.passes + sign * other.passes,
            {n: self.sources.get(n, none).plus(other.sources.get(n, none), sign) for n in names},
        )

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON values."""
        return asdict(self)

    def rows(self, positions: int) -> list[tuple[str, ...]]:
        """A row for each source that drafted: shares accepted at each of so many positions."""
        per_pass = f"{self.tokens / self.passes:.2f}" if self.passes else "-"
        head = (self.task, str(self.tokens), per_pass)
        return [
            (*head, name, str(counts.judged[0]), *_shares(counts, positions))
            for name, counts in self.sources.items()
            if any(counts.judged)
        ] or [(*head, "none", "0", *["-"] * positions)]


def _shares(counts: DraftCounts, positions: int) -> list[str]:
    shares = [
        f"{right / judged:.1%}" if judged else "-"
        for judged, right in zip(counts.judged, counts.accepted, strict=True)
    ]
    return shares + ["-"] * (positions - len(shares))


def table_of(tasks: Sequence[TaskAcceptance]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Columns and rows, "#1" for the first draft of a round; the last rows are over all tasks."""
    lengths = [len(counts.judged) for task in tasks for counts in task.sources.values()]
    positions = max(lengths, default=0)
    columns = ["task", "tokens", "tokens a pass", "source", "rounds"]
    columns += [f"#{number}" for number in range(1, positions + 1)]
    shown = list(tasks)
    if len(tasks) > 1:
        total = TaskAcceptance(OVERALL)
        for task in tasks:
            total = total.plus(task)
        shown.append(total)
    return columns, [row for task in shown for row in task.rows(positions)]
