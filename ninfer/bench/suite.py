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
from ninfer.bench.machine import Machine, has_card, this_machine
from ninfer.bench.report import Findings, Report, Row
from ninfer.errors import UsageError
from ninfer.lazy import lazy_exports

# Needs what only a machine with a card has.
_ops = lazy_exports("ninfer.bench.ops", {"run": "ninfer.bench.ops"})
_variants = lazy_exports("ninfer.bench.ops_variants", {"run": "ninfer.bench.ops_variants"})


def _run_ops() -> Findings:
    found: Findings = _ops("run")()
    return found


def _run_variants() -> Findings:
    found: Findings = _variants("run")()
    return found


BENCHMARKS: Final[dict[str, Callable[[], list[Row] | Findings]]] = {
    "artifact": artifact.run,
    "convert": convert.run,
    "engine-batch": engine_batch.run,
    "engine-cpu": engine_cpu.run,
    "engine-prefix": engine_prefix.run,
    "engine-round": engine_round.run,
    "formats": formats.run,
    "ops": _run_ops,
    "ops-variants": _run_variants,
}
# What the others measure is the processor.
_DEVICES: Final = {"ops": "cuda", "ops-variants": "cuda"}


def machine_of(name: str) -> Machine:
    """The machine that a benchmark of that name measures."""
    if name == "engine" and has_card():
        return this_machine("cuda")
    return this_machine(_DEVICES.get(name, "cpu"))


def run_benchmark(name: str) -> Report:
    """Run one benchmark; its own correctness check comes before its timing.

    A part that failed its check is in the report's failures and has no row.

    Raises UsageError for a name outside the table, and whatever the check raises.
    """
    run = BENCHMARKS.get(name)
    if run is None:
        raise UsageError(f"unknown benchmark {name!r}; known: {', '.join(BENCHMARKS)}")
    return Report.now(name, machine_of(name), run())
