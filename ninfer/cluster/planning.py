"""How many replicas a load needs, what they cost, and where each way to route breaks."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ninfer.cluster.costs import Costs
from ninfer.cluster.prices import Prices
from ninfer.cluster.simulate import Outcome, simulate
from ninfer.cluster.trace import Trace
from ninfer.errors import UsageError

# Loads are told to this factor; more would be the noise of the trace.
_LOAD_STEP: Final = 1.05
_MOST_LOAD: Final = 16.0
_HOURS_A_MONTH: Final = 730


@dataclass(frozen=True, slots=True)
class Objective:
    """Seconds that `percent` of the requests may take at most."""

    first: float  # to the first token
    token: float  # between tokens, mean of an answer
    percent: float

    def met(self, outcome: Outcome) -> bool:
        """Whether a run kept both."""
        first, token = outcome.first_at(self.percent), outcome.token_at(self.percent)
        return first <= self.first and token <= self.token


@dataclass(frozen=True, slots=True)
class Row:
    """One way to route: the replicas that meet the objective, how it goes, what breaks it."""

    routing: str
    replicas: int
    met: bool
    first_p50: float
    first: float  # at the objective's percentile
    token: float
    tokens_per_second: float
    hit_rate: float
    away: float  # share of returning requests that went elsewhere than their conversation before
    most_waiting: int
    holds_to: float | None  # times the load, until the objective is missed; None: not looked for
    dollars_an_hour: float | None
    dollars_a_million: float | None  # tokens of answers

    def as_json(self) -> dict[str, Any]:
        """Its fields, and the dollars of a month."""
        hour = self.dollars_an_hour
        month = None if hour is None else hour * _HOURS_A_MONTH
        return {**asdict(self), "dollars_a_month": month}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the simulator."""

    trace: Trace
    costs: Costs
    objective: Objective
    seed: int
    prices: Prices | None = None  # of the machines of replicas

    def run(self, replicas: int, routing: str, load: float = 1.0) -> Outcome:
        """The trace at a multiple of its load."""
        trace = self.trace if load == 1.0 else self.trace.faster(load)
        return simulate(trace, self.costs, replicas, routing, self.seed)

    def meets(self, replicas: int, routing: str, load: float = 1.0) -> bool:
        """Whether the objective is kept."""
        return self.objective.met(self.run(replicas, routing, load))


def plan(question: Question, routings: Sequence[str], replicas: int | None, most: int) -> list[Row]:
    """A row for each routing, with `replicas` or the fewest that do; `most` where none do.

    With a given number the breaking load is not looked for, as runs of that size may be long.
    Raises UsageError where no routing meets the objective with `most` replicas.
    """
    rows = [_row(question, routing, replicas or most, fixed=bool(replicas)) for routing in routings]
    if replicas is None and not any(row.met for row in rows):
        raise UsageError(
            f"{most} replicas do not meet the objective; raise --first-token-s or --token-s, lower "
            "the load, or raise --most-replicas"
        )
    return rows


def breaking_load(question: Question, routing: str, replicas: int) -> float:
    """The largest multiple of the load, in steps of 5 %, that still meets the objective."""
    held = 1.0
    while held * _LOAD_STEP <= _MOST_LOAD and question.meets(replicas, routing, held * _LOAD_STEP):
        held *= _LOAD_STEP
    return held


def _first_true(holds: Callable[[int], bool], most: int) -> int | None:
    """The least number of 1..most for which it holds, once it holds for all above."""
    low, high = 0, 1
    while not holds(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _row(question: Question, routing: str, most: int, *, fixed: bool) -> Row:
    found = most if fixed else _first_true(lambda n: question.meets(n, routing), most)
    replicas = most if found is None else found
    holds = None if fixed or found is None else breaking_load(question, routing, replicas)
    outcome, percent = question.run(replicas, routing), question.objective.percent
    hour = None if question.prices is None else question.prices.hour(replicas)
    speed = outcome.tokens_per_second
    return Row(
        routing=routing,
        replicas=replicas,
        met=question.objective.met(outcome),
        first_p50=outcome.first_at(50),
        first=outcome.first_at(percent),
        token=outcome.token_at(percent),
        tokens_per_second=speed,
        hit_rate=outcome.hit_rate,
        away=outcome.away / max(1, outcome.returns),
        most_waiting=outcome.most_waiting,
        holds_to=holds,
        dollars_an_hour=hour,
        dollars_a_million=None if hour is None else hour / 3600 / speed * 1e6,
    )
