"""Benchmarks: times and rates of this machine, each beside a baseline or a roof."""

from typing import TYPE_CHECKING

from ninfer.bench.machine import has_card, this_machine
from ninfer.bench.report import Findings, Report, Row, check_comparable, compare
from ninfer.bench.suite import BENCHMARKS, machine_of, run_benchmark
from ninfer.bench.tuned_table import keeper
from ninfer.lazy import lazy_exports

if TYPE_CHECKING:
    from ninfer.bench.tune import tune_card

__all__ = [
    "BENCHMARKS",
    "Findings",
    "Report",
    "Row",
    "check_comparable",
    "compare",
    "has_card",
    "keeper",
    "machine_of",
    "run_benchmark",
    "this_machine",
    "tune_card",
]

# Needs Triton, which a machine without a card may lack.
__getattr__ = lazy_exports(__name__, {"tune_card": "ninfer.bench.tune"})
