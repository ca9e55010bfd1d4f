"""Gains: how much faster one mode is than another, on pairs of which both are usable."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ninfer.audit.statistics import Interval, paired_interval
from ninfer.audit.tables import GROUPS, OVERALL
from ninfer.audit.verdict import Verdict

Pair = tuple[Verdict, Verdict]
_NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class Gain:
    """One group: `pairs` of the same question, seed and sampling, `both` of them usable twice.

    `only_first` and `only_second` were usable in one of the two. `ratio` is the geometric mean of
    second over first decode rates with its 95 % interval, over pairs with `both`; `chance` that of
    so large a difference, if none were there. `same` pairs have the same text.
    """

    group: str
    first: str
    second: str
    pairs: int
    both: int
    only_first: int
    only_second: int
    same: int
    ratio: Interval | None
    first_acceptance: float | None = None
    second_acceptance: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The gain as JSON values."""
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        """A row of a table with the columns COLUMNS."""
        ratio = self.ratio
        return (
            self.group,
            f"{self.second} : {self.first}",
            str(self.pairs),
            str(self.both),
            str(self.only_first),
            str(self.only_second),
            str(self.same),
            f"{ratio.middle:.2f}x" if ratio else _NONE,
            f"{ratio.low:.2f} .. {ratio.high:.2f}" if ratio else _NONE,
            chance_text(ratio.chance) if ratio else _NONE,
            _share(self.first_acceptance),
            _share(self.second_acceptance),
        )


COLUMNS: Final = (
    "group",
    "compared",
    "pairs",
    "both usable",
    "only first",
    "only second",
    "same text",
    "tok/s",
    "95 % interval",
    "chance",
    "accepted, first",
    "accepted, second",
)


def chance_text(chance: float) -> str:
    """A chance with three digits; smaller ones are not 0."""
    return "< 0.001" if chance < 0.0005 else f"{chance:.3f}"


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0%}"


def gains(verdicts: Sequence[Verdict], by: str) -> list[Gain]:
    """Every later mode against the first one that occurs, by group and over all."""
    modes: dict[str, dict[tuple[object, ...], Verdict]] = {}
    for verdict in verdicts:
        response = verdict.response
        place = (*response.key[:-1], response.origin.model)
        modes.setdefault(response.mode, {})[place] = verdict
    first, *others = modes
    found: list[Gain] = []
    for other in others:
        pairs = [(old, new) for key, old in modes[first].items() if (new := modes[other].get(key))]
        found += grouped_gains(pairs, by, first or _NONE, other or _NONE)
    return found


def grouped_gains(pairs: Sequence[Pair], by: str, first: str, second: str) -> list[Gain]:
    """A gain for each group of the first members, and over all where there are several groups.

    `by` OVERALL makes no groups.
    """
    if by == OVERALL:
        return [gain_of(OVERALL, pairs, first, second)]
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(GROUPS[by](pair[0]), []).append(pair)
    rows = [gain_of(name, members, first, second) for name, members in groups.items()]
    return rows if len(rows) < 2 else [*rows, gain_of(OVERALL, pairs, first, second)]


def gain_of(group: str, pairs: Sequence[Pair], first: str, second: str) -> Gain:
    """The gain over these pairs, of which there is at least one."""
    ratios = []
    for old, new in pairs:
        before, after = old.response.decode_rate, new.response.decode_rate
        if old.usable and new.usable and before and after:
            ratios.append(math.log(after / before))
    ratio = paired_interval(ratios)
    return Gain(
        group=group,
        first=first,
        second=second,
        pairs=len(pairs),
        both=sum(old.usable and new.usable for old, new in pairs),
        only_first=sum(old.usable and not new.usable for old, new in pairs),
        only_second=sum(new.usable and not old.usable for old, new in pairs),
        same=sum(_same(old, new) for old, new in pairs),
        ratio=ratio.mapped(math.exp) if ratio else None,
        first_acceptance=_acceptance([old for old, new in pairs if old.usable and new.usable]),
        second_acceptance=_acceptance([new for old, new in pairs if old.usable and new.usable]),
    )


def _same(old: Verdict, new: Verdict) -> bool:
    one, other = old.response, new.response
    if one.token_ids and other.token_ids:
        return one.token_ids == other.token_ids
    return (one.reasoning, one.text) == (other.reasoning, other.text)


def _acceptance(verdicts: Sequence[Verdict]) -> float | None:
    drafts = [verdict.response.drafts for verdict in verdicts if verdict.response.drafts]
    drafted = sum(one.drafted for one in drafts)
    return sum(one.accepted for one in drafts) / drafted if drafted else None
