"""Tables: counts of endings, contracts and loops by group, rates over all and over usable ones."""

import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ninfer.audit.termination import WHOLE
from ninfer.audit.verdict import Verdict

OVERALL: Final = "all"
_NONE: Final = "-"

GROUPS: Final[dict[str, Callable[[Verdict], str]]] = {
    "category": lambda verdict: verdict.response.group,
    "fixture": lambda verdict: verdict.response.fixture,
    "mode": lambda verdict: verdict.response.mode or _NONE,
    "sampling": lambda verdict: verdict.response.sampling or _NONE,
    "model": lambda verdict: verdict.response.origin.model or _NONE,
}


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation of some values; the deviation of one value is 0."""

    mean: float
    deviation: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.deviation:.1f}"


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Mean and deviation of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else 0.0
    return Spread(statistics.fmean(known), deviation, len(known))


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group. Rates are decode tok/s; `usable_per_second` has the seconds of all responses.

    `acceptance` is accepted over drafted tokens of all, `usable_acceptance` of usable responses.
    """

    name: str
    responses: int
    whole: int
    contracts: int
    kept: int
    loops: int
    usable: int
    rate: Spread | None
    usable_rate: Spread | None
    usable_per_second: float | None
    acceptance: float | None
    usable_acceptance: float | None

    def to_json(self) -> dict[str, Any]:
        """The row as JSON values."""
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        """A row of a table with the columns COLUMNS."""
        mark = f" ({self.loops} loops in it)" if self.loops and self.rate else ""
        return (
            self.name,
            str(self.responses),
            f"{self.usable} ({self.usable / self.responses:.0%})",
            str(self.whole),
            f"{self.kept} of {self.contracts}" if self.contracts else _NONE,
            str(self.loops),
            f"{self.rate}{mark}" if self.rate else _NONE,
            str(self.usable_rate) if self.usable_rate else _NONE,
            _NONE if self.usable_per_second is None else f"{self.usable_per_second:.1f}",
            _share(self.acceptance),
            _share(self.usable_acceptance),
        )


COLUMNS: Final = (
    "group",
    "responses",
    "usable",
    "ended by itself",
    "contract kept",
    "loops",
    "tok/s over all",
    "tok/s usable",
    "usable tok/s of wall",
    "accepted",
    "accepted, usable",
)


def group_rows(verdicts: Sequence[Verdict], by: str) -> list[GroupRow]:
    """A row for each group in the order of their first response, and one over all at the end."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(GROUPS[by](verdict), []).append(verdict)
    rows = [group_row(name, members) for name, members in groups.items()]
    return rows if len(rows) == 1 else [*rows, group_row(OVERALL, verdicts)]


def group_row(name: str, verdicts: Sequence[Verdict]) -> GroupRow:
    """The figures of one group, which is not empty."""
    usable = [verdict for verdict in verdicts if verdict.usable]
    checked = [verdict.contract for verdict in verdicts if verdict.contract is not None]
    return GroupRow(
        name=name,
        responses=len(verdicts),
        whole=sum(verdict.ending in WHOLE for verdict in verdicts),
        contracts=len(checked),
        kept=sum(check.ok for check in checked),
        loops=sum(verdict.repetition.is_loop for verdict in verdicts),
        usable=len(usable),
        rate=spread_of(verdict.response.decode_rate for verdict in verdicts),
        usable_rate=spread_of(verdict.response.decode_rate for verdict in usable),
        usable_per_second=_usable_per_second(verdicts),
        acceptance=_acceptance(verdicts),
        usable_acceptance=_acceptance(usable),
    )


def _usable_per_second(verdicts: Sequence[Verdict]) -> float | None:
    """Tokens of usable responses over the seconds that all of them took; None if unknown."""
    times = [verdict.response.timings.total for verdict in verdicts]
    tokens = [verdict.response.usage.completion for verdict in verdicts if verdict.usable]
    if None in times or None in tokens:
        return None
    seconds = sum(time for time in times if time is not None)
    return sum(count for count in tokens if count is not None) / seconds if seconds else None


def _acceptance(verdicts: Iterable[Verdict]) -> float | None:
    drafts = [verdict.response.drafts for verdict in verdicts if verdict.response.drafts]
    drafted = sum(one.drafted for one in drafts)
    return sum(one.accepted for one in drafts) / drafted if drafted else None


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0%}"


PROBLEM_COLUMNS: Final = ("response", "verdict", "tokens", "tok/s", "why")
_WHY: Final = 150


def problem_rows(verdicts: Iterable[Verdict]) -> list[tuple[str, ...]]:
    """A row for each response that cannot be used; its rate is in brackets, reasons are cut."""
    return [
        (
            name_of(verdict),
            verdict.word,
            str(verdict.response.usage.completion or _NONE),
            rate_text(verdict),
            textwrap.shorten("; ".join(verdict.reasons), _WHY, placeholder=" ..."),
        )
        for verdict in verdicts
        if not verdict.usable
    ]


def name_of(verdict: Verdict) -> str:
    """`fixture/case mode sampling seed`, as far as they are known."""
    response = verdict.response
    first = f"{response.fixture}/{response.case}" if response.case else response.fixture
    seed = "" if response.seed is None else str(response.seed)
    return " ".join(part for part in (first, response.mode, response.sampling, seed) if part)


def rate_text(verdict: Verdict) -> str:
    """A rate with its mark."""
    rate = verdict.response.decode_rate
    if rate is None:
        return _NONE
    if verdict.usable:
        return f"{rate:.1f}"
    return f"[{rate:.1f}, {'a loop' if verdict.repetition.is_loop else 'not usable'}]"
