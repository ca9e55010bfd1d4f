"""The table of grader kinds, and grading one answer."""

from collections.abc import Callable, Mapping
from typing import Final

from ninfer.audit.contracts.parameters import Parameters
from ninfer.errors import UsageError
from ninfer.evals.answer import Answer
from ninfer.evals.graders import calls, prose, records, text

# What is wrong with an answer; nothing when it is right.
Grader = Callable[[Answer], tuple[str, ...]]

KINDS: Final[Mapping[str, Callable[[Parameters], Grader]]] = {
    "exact": text.exact,
    "one_of": text.one_of,
    "number": text.number,
    "list": text.listed,
    "contains": text.contains,
    "json_object": records.json_object,
    "jsonl": records.jsonl,
    "csv": records.csv,
    "sql": records.sql,
    "story": prose.story,
    "language_length": prose.language_length,
    "tool_calls": calls.tool_calls,
}


def parse_grade(values: object, where: str) -> Grader:
    """The grader that a grade object asks for. Raises UsageError naming the wrong member."""
    if not isinstance(values, Mapping):
        raise UsageError(f"{where}: {values!r} must be an object with a kind")
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UsageError(f"{where}.kind: {kind!r} must be one of {', '.join(KINDS)}")
    parameters = Parameters(values, where)
    grader = KINDS[kind](parameters)
    parameters.done()
    return grader


def grade(grader: Grader, answer: Answer) -> tuple[str, ...]:
    """What is wrong with an answer, () when it is right. One that was cut is never right."""
    if not answer.is_natural:
        return (f"ended by {answer.finish_reason}",)
    return grader(answer)
