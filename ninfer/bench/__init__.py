"""Benchmarks: times and rates of this machine, each beside a baseline or a roof."""

from ninfer.bench.report import Report, Row, compare
from ninfer.bench.suite import BENCHMARKS, run_benchmark

__all__ = ["BENCHMARKS", "Report", "Row", "compare", "run_benchmark"]
