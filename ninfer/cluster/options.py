"""What a user may ask of a cluster: serving, updating, measuring, planning."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.cluster.choice import AFFINITY, ROUTINGS
from ninfer.errors import UnsupportedError, UsageError
from ninfer.options import check_choices, flag_of, option

_ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What `ninfer cluster serve` takes beside the options of the server and of the engine."""

    replicas: int | None = option(
        1, "replicas; auto: as many as the load asks for", metavar="N|auto"
    )
    min_replicas: int = option(1, "the fewest with --replicas auto", metavar="N")
    max_replicas: int | None = option(
        None, "the most with --replicas auto", metavar="N", unset="one for each GPU, or CPU"
    )
    address: str | None = option(
        None,
        "Ray cluster to run on, HOST:PORT, or `local` for the one on this machine",
        metavar="ADDRESS",
        unset="start Ray on this machine, and end it at the end",
    )
    cpus: float = option(1.0, "cores that each replica is given", metavar="X")
    routing: str = option(
        AFFINITY,
        "how a replica is chosen: the one that holds the conversation's prefix unless it is "
        "overloaded, the one with the fewest requests, or any",
        choices=ROUTINGS,
    )
    response_store: str | None = option(
        None,
        "SQLite file in which all replicas of this machine keep stored responses",
        metavar="FILE",
        unset="a temporary one",
    )
    replica_wait_s: int = option(
        60, "seconds for which requests wait while no replica serves", metavar="N"
    )


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What `ninfer cluster plan` takes."""

    costs: Path | None = option(
        None, "file of measured costs, from 'ninfer cluster measure'", metavar="FILE", unset="none"
    )
    trace: Path | None = option(
        None,
        "CSV file of arrivals: arrival_s, conversation, prompt_tokens, answer_tokens",
        metavar="FILE",
        unset="drawn from the options below",
    )
    rate: float = option(1.0, "requests a second", metavar="X")
    requests: int = option(20_000, "requests to simulate", metavar="N")
    turns: float = option(5.0, "requests of a conversation, mean", metavar="X")
    system_tokens: int = option(500, "tokens before the first turn", metavar="N")
    turn_tokens: int = option(200, "tokens that a turn adds, mean", metavar="N")
    answer_tokens: int = option(300, "tokens of an answer, mean", metavar="N")
    pause_s: float = option(20.0, "seconds between turns of a conversation, mean", metavar="X")
    first_token_s: float = option(2.0, "objective: seconds to the first token", metavar="X")
    token_s: float = option(0.05, "objective: seconds between tokens", metavar="X")
    percentile: float = option(95.0, "share of requests that keep both, in %", metavar="X")
    replicas: int | None = option(
        None,
        "replicas to look at; auto: the fewest that meet the objective",
        metavar="N|auto",
        unset="auto",
    )
    most_replicas: int = option(4096, "where to stop looking", metavar="N")
    routing: str = option(_ALL, "routing to look at", choices=(*ROUTINGS, _ALL))
    price: float | None = option(
        None,
        "dollars an hour of each replica's machine",
        metavar="X",
        unset="no costs are told",
    )
    offers: Path | None = option(
        None,
        "file that 'ninfer offers --json' wrote, in place of --price: the cheapest are taken",
        metavar="FILE",
        unset="none",
    )
    seed: int = option(0, "seed of drawn traces and of random routing", metavar="N")
    json: bool = option(False, "print a JSON list")

    @property
    def routings(self) -> tuple[str, ...]:
        """The routings that are meant."""
        return ROUTINGS if self.routing == _ALL else (self.routing,)


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """What `ninfer cluster measure` takes."""

    output: Path | None = option(None, "file to write", metavar="FILE", unset="print it")
    api_key: str | None = option(
        None, "key of the server", metavar="KEY", environment="NINFER_API_KEY"
    )
    prompt_tokens: int = option(512, "longest prompt to time", metavar="N")
    answer_tokens: int = option(64, "tokens of each timed answer", metavar="N")
    rounds: int = option(3, "times that each point is taken", metavar="N")


def check_cluster(options: ClusterOptions) -> None:
    """Check values that need no Ray. Raises UsageError naming the option and the value."""
    check_choices(options)
    for name in ("replicas", "min_replicas", "max_replicas", "replica_wait_s"):
        _at_least(options, name, 1)
    _above(options, "cpus")
    most = options.max_replicas
    if most is not None and most < options.min_replicas:
        raise UsageError(
            f"--max-replicas {most}: is below --min-replicas {options.min_replicas}; raise it"
        )
    store = options.response_store or ""
    if "://" in store:
        raise UnsupportedError(
            f"--response-store {store.partition('://')[0]}://...: only a SQLite file is supported, "
            "so responses are found by the replicas of one machine; give a path"
        )


def check_load(options: LoadOptions) -> Path:
    """The file of costs, once all values are sound. Raises UsageError naming the option."""
    check_choices(options)
    for name in ("requests", "turn_tokens", "answer_tokens", "replicas", "most_replicas"):
        _at_least(options, name, 1)
    for name in ("rate", "first_token_s", "token_s", "percentile"):
        _above(options, name)
    for name in ("system_tokens", "pause_s", "price", "seed"):
        _at_least(options, name, 0)
    _at_least(options, "turns", 1)
    if options.percentile > 100:
        raise UsageError(f"--percentile {options.percentile:g}: must be 100 or less")
    if options.price is not None and options.offers is not None:
        raise UsageError(f"--price {options.price:g} and --offers: give one of them")
    if options.costs is None:
        raise UsageError("--costs: no costs are built in; measure them by 'ninfer cluster measure'")
    return options.costs


def check_measure(options: MeasureOptions) -> None:
    """Raises UsageError naming the option and the value."""
    for name, least in (("prompt_tokens", 64), ("answer_tokens", 8), ("rounds", 1)):
        _at_least(options, name, least)


def _at_least(options: object, name: str, least: int) -> None:
    value = getattr(options, name)
    if value is not None and not least <= value < float("inf"):
        raise UsageError(f"{flag_of(name, None)} {value}: must be {least} or more")


def _above(options: object, name: str) -> None:
    value = getattr(options, name)
    if not 0 < value < float("inf"):
        raise UsageError(f"{flag_of(name, None)} {value}: must be above 0")
