"""Right or wrong answers: suites of items with graders, a resumable run, scores, comparison."""

from ninfer.evals.answer import Answer
from ninfer.evals.options import EvalOptions, check_evals
from ninfer.evals.report import DELTA_COLUMNS, SCORE_COLUMNS, Report, compare, score
from ninfer.evals.results import Header, Outcome, ResultFile, read_results
from ninfer.evals.runner import run_items
from ninfer.evals.suite import Item, Suite, load_suite, suite_names

__all__ = [
    "DELTA_COLUMNS",
    "SCORE_COLUMNS",
    "Answer",
    "EvalOptions",
    "Header",
    "Item",
    "Outcome",
    "Report",
    "ResultFile",
    "Suite",
    "check_evals",
    "compare",
    "load_suite",
    "read_results",
    "run_items",
    "score",
    "suite_names",
]
