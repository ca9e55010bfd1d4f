"""Benchmarks: times and rates of this machine, each beside a baseline or a roof."""

from ninfer.bench.machine import this_machine
from ninfer.bench.report import Findings, Report, Row, check_comparable, compare
from ninfer.bench.suite import BENCHMARKS, machine_of, run_benchmark

__all__ = [
    "BENCHMARKS",
    "Findings",
    "Report",
    "Row",
    "check_comparable",
    "compare",
    "machine_of",
    "run_benchmark",
    "this_machine",
]
