"""The table of benchmarks, and running one into a report."""

from collections.abc import Callable
from typing import Final

from ninfer.bench import (
    artifact,
    convert,
    engine_batch,
    engine_cpu,
    engine_prefix,
    engine_round,
    formats,
)
from ninfer.bench.machine import this_machine
from ninfer.bench.report import Report, Row
from ninfer.errors import UsageError

BENCHMARKS: Final[dict[str, Callable[[], list[Row]]]] = {
    "artifact": artifact.run,
    "convert": convert.run,
    "engine-batch": engine_batch.run,
    "engine-cpu": engine_cpu.run,
    "engine-prefix": engine_prefix.run,
    "engine-round": engine_round.run,
    "formats": formats.run,
}


def run_benchmark(name: str) -> Report:
    """Run one benchmark; its own correctness check comes before its timing.

    Raises UsageError for a name outside the table, and whatever the check raises.
    """
    run = BENCHMARKS.get(name)
    if run is None:
        raise UsageError(f"unknown benchmark {name!r}; known: {', '.join(BENCHMARKS)}")
    return Report.now(name, this_machine(), run())
