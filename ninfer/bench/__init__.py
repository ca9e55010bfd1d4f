"""Benchmarks: times and rates of this machine, each beside a baseline or a roof."""

from ninfer.bench.machine import this_machine
from ninfer.bench.report import Report, Row, check_comparable, compare
from ninfer.bench.suite import BENCHMARKS, run_benchmark

__all__ = [
    "BENCHMARKS",
    "Report",
    "Row",
    "check_comparable",
    "compare",
    "run_benchmark",
    "this_machine",
]
