"""Scores of a run by task, and the difference between two runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ninfer.audit.statistics import sign_test, wilson
from ninfer.errors import UsageError
from ninfer.evals.results import Header, Outcome

OVERALL: Final = "all"


@dataclass(frozen=True, slots=True)
class TaskScore:
    """Of one task: right answers with their 95 % interval, natural ends, mean answer length."""

    task: str
    items: int
    right: int
    natural: int
    mean_tokens: float
    low: float
    high: float

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.right / self.items

    def cells(self) -> tuple[str, ...]:
        """A row of a table with the columns SCORE_COLUMNS."""
        return (
            self.task,
            str(self.items),
            f"{self.accuracy:.1%}",
            f"{self.low:.1%} .. {self.high:.1%}",
            f"{self.natural / self.items:.1%}",
            f"{self.mean_tokens:.1f}",
        )


SCORE_COLUMNS: Final = ("task", "items", "right", "95 % interval", "natural end", "mean tokens")


@dataclass(frozen=True, slots=True)
class Report:
    """Scores of a run by task in the order of its suite, and over all items."""

    header: Header
    tasks: tuple[TaskScore, ...]
    overall: TaskScore

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values; accuracies are added."""
        scores = [{**asdict(s), "accuracy": s.accuracy} for s in (*self.tasks, self.overall)]
        return {**asdict(self.header), "tasks": scores[:-1], "overall": scores[-1]}

    def rows(self) -> list[tuple[str, ...]]:
        """The rows of the table; the last is over all items, where there are several tasks."""
        shown = self.tasks if len(self.tasks) == 1 else (*self.tasks, self.overall)
        return [score.cells() for score in shown]


def score(header: Header, outcomes: Iterable[Outcome]) -> Report:
    """Scores of outcomes. Raises UsageError when there are none."""
    by_task: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_task.setdefault(outcome.task, []).append(outcome)
    if not by_task:
        raise UsageError("no item was answered; there is nothing to report")
    everything = [outcome for found in by_task.values() for outcome in found]
    tasks = tuple(_task_score(task, found) for task, found in by_task.items())
    return Report(header, tasks, _task_score(OVERALL, everything))


def _task_score(task: str, outcomes: Sequence[Outcome]) -> TaskScore:
    total, right = len(outcomes), sum(outcome.is_right for outcome in outcomes)
    tokens = sum(len(outcome.answer.token_ids) for outcome in outcomes)
    natural = sum(outcome.answer.is_natural for outcome in outcomes)
    return TaskScore(task, total, right, natural, tokens / total, *wilson(right, total))


@dataclass(frozen=True, slots=True)
class TaskDelta:
    """Of one task, items that both runs answered: how many only one of them answered right.

    `chance` is that of an imbalance as large as this between equal models.
    """

    task: str
    items: int
    before: float
    after: float
    lost: int
    gained: int
    chance: float

    @property
    def delta(self) -> float:
        """Accuracy of the second run less that of the first."""
        return self.after - self.before

    def cells(self) -> tuple[str, ...]:
        """A row of a table with the columns DELTA_COLUMNS."""
        return (
            self.task,
            str(self.items),
            f"{self.before:.1%}",
            f"{self.after:.1%}",
            f"{100 * self.delta:+.1f}",
            str(self.lost),
            str(self.gained),
            f"{self.chance:.3f}",
        )


DELTA_COLUMNS: Final = (
    "task",
    "items",
    "first",
    "second",
    "points",
    "only first right",
    "only second right",
    "chance",
)


def compare(before: Mapping[str, Outcome], after: Mapping[str, Outcome]) -> list[TaskDelta]:
    """The second run against the first by task, over the items that both have.

    Raises UsageError when there are none, or when an item is not the same in both.
    """
    pairs: dict[str, list[tuple[bool, bool]]] = {}
    for name, old in before.items():
        new = after.get(name)
        if new is None:
            continue
        if new.digest != old.digest:
            raise UsageError(f"item {name} was another in the other run; run the suite again")
        pairs.setdefault(old.task, []).append((old.is_right, new.is_right))
    if not pairs:
        raise UsageError("the two files have no item in common")
    everything = [pair for found in pairs.values() for pair in found]
    rows = [_delta(task, found) for task, found in pairs.items()]
    return rows if len(rows) == 1 else [*rows, _delta(OVERALL, everything)]


def _delta(task: str, pairs: Sequence[tuple[bool, bool]]) -> TaskDelta:
    total = len(pairs)
    lost = sum(old and not new for old, new in pairs)
    gained = sum(new and not old for old, new in pairs)
    return TaskDelta(
        task,
        total,
        before=sum(old for old, _ in pairs) / total,
        after=sum(new for _, new in pairs) / total,
        lost=lost,
        gained=gained,
        chance=sign_test(lost, gained),
    )
