"""Figures of a load: waits, times between tokens, rates, and how much was served in time."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ninfer.audit import Verdict
from ninfer.audit.termination import Ending
from ninfer.bench.serve.asking import Served

PERCENTILES: Final = (50, 90, 95, 99)
COLUMNS: Final = ("what", "unit", "mean", *(f"p{at}" for at in PERCENTILES), "most", "of")


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, percentiles (linear between ranks) and the largest of `count` values."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float

    def cells(self, name: str, unit: str, scale: float) -> tuple[str, ...]:
        """A row with the columns COLUMNS."""
        values = (self.mean, self.p50, self.p90, self.p95, self.p99, self.most)
        return name, unit, *(f"{scale * value:.4g}" for value in values), str(self.count)


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """The spread of the values that are known; None without any."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    p50, p90, p95, p99 = (percentile(known, at) for at in PERCENTILES)
    return Spread(len(known), statistics.fmean(known), p50, p90, p95, p99, known[-1])


def percentile(ascending: Sequence[float], at: float) -> float:
    """The value below which `at` percent lie, by a line between the two ranks next to it."""
    place = (len(ascending) - 1) * at / 100
    low = int(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (ascending[high] - ascending[low]) * (place - low)


@dataclass(frozen=True, slots=True)
class Objective:
    """When a request counts as served in time; None asks for nothing. Seconds."""

    ttft: float | None = None
    tpot: float | None = None

    def met(self, served: Served) -> bool:
        """Whether it was in time. What cannot be told of an answer is not held against it only
        where there is nothing to tell: one token has no time between tokens."""
        if self.ttft is not None and (served.ttft is None or served.ttft > self.ttft):
            return False
        if self.tpot is None or (served.tokens is not None and served.tokens < 2):
            return True
        return served.tpot is not None and served.tpot <= self.tpot


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """What a load found. Times in seconds, rates by the second of `seconds`, the whole load.

    `good` counts answers that were in time and that nothing speaks against but the limit that the
    load itself set: fast loops and fast errors are no goodput. `late` is how long requests waited
    for a place among those under way.
    """

    requests: int
    failed: int
    usable: int
    good: int
    seconds: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    usable_output_tokens: int
    ttft: Spread | None
    tpot: Spread | None
    gap: Spread | None
    total: Spread | None
    late: Spread | None

    @property
    def goodput(self) -> float:
        """Good answers by the second."""
        return self.good / self.seconds

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        rates = {
            "requests_per_second": (self.requests - self.failed) / self.seconds,
            "output_tokens_per_second": self.output_tokens / self.seconds,
            "usable_output_tokens_per_second": self.usable_output_tokens / self.seconds,
            "goodput_requests_per_second": self.goodput,
            "good_share": self.good / self.requests,
        }
        return {**asdict(self), **rates}

    def rows(self) -> list[tuple[str, ...]]:
        """Rows of a table with the columns COLUMNS, those that are known."""
        named = (
            ("time to first text", "ms", 1e3, self.ttft),
            ("time a token", "ms", 1e3, self.tpot),
            ("between pieces", "ms", 1e3, self.gap),
            ("whole answer", "s", 1.0, self.total),
            ("sent after due", "ms", 1e3, self.late),
        )
        return [spread.cells(name, unit, scale) for name, unit, scale, spread in named if spread]

    def lines(self) -> list[str]:
        """The rates in words."""
        shown = self.to_json()
        return [
            f"{self.requests} requests in {self.seconds:.2f} s: {self.failed} failed, "
            f"{self.usable} usable",
            f"output: {shown['output_tokens_per_second']:.1f} tok/s over all, "
            f"{shown['usable_output_tokens_per_second']:.1f} tok/s of usable answers",
            f"prompts: {self.prompt_tokens} tokens, {self.cached_tokens} of them cached",
            f"goodput: {self.goodput:.3f} requests/s, {shown['good_share']:.1%} of all",
        ]


def figures_of(
    served: Sequence[Served], verdicts: Sequence[Verdict], objective: Objective
) -> LoadFigures:
    """Add up a load of one request or more; `verdicts` stand in the order of `served`."""
    usages = [one.response.usage for one in served]
    pairs = list(zip(served, verdicts, strict=True))
    begin, end = min(one.due for one in served), max(one.ended for one in served)
    whole = [one for one in served if one.response.error is None]
    return LoadFigures(
        requests=len(served),
        failed=len(served) - len(whole),
        usable=sum(verdict.usable for verdict in verdicts),
        good=sum(objective.met(one) and is_sound(verdict) for one, verdict in pairs),
        seconds=max(end - begin, 1e-9),
        prompt_tokens=sum(usage.prompt or 0 for usage in usages),
        cached_tokens=sum(usage.cached or 0 for usage in usages),
        output_tokens=sum(one.tokens or 0 for one in served),
        usable_output_tokens=sum(one.tokens or 0 for one, verdict in pairs if verdict.usable),
        ttft=spread_of(one.ttft for one in whole),
        tpot=spread_of(one.tpot for one in whole),
        gap=spread_of(gap for one in whole for gap in one.gaps),
        total=spread_of(one.ended - one.due for one in whole),
        late=spread_of(one.sent - one.due for one in served),
    )


def is_sound(verdict: Verdict) -> bool:
    """Whether nothing speaks against an answer but the limit that the load itself set."""
    return verdict.usable or (
        verdict.ending is Ending.LIMIT and verdict.reasons == (f"ended by {Ending.LIMIT}",)
    )
