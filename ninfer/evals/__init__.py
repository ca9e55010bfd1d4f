"""Right or wrong answers: suites of items with graders, a resumable run, scores, comparison."""

from ninfer.evals.answer import Answer
from ninfer.evals.suite import Item, Suite, load_suite, suite_names

__all__ = ["Answer", "Item", "Suite", "load_suite", "suite_names"]
