"""Verdicts on answers at the moment they end, from ids and endings; no text is kept."""

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ninfer.audit.cycles import find_cycles
from ninfer.audit.record import StoredResponse
from ninfer.audit.repetition import TOKENS
from ninfer.audit.termination import UNSUSPECTED, Ending, ending_of
from ninfer.request import (
    ChoiceSpec,
    ConstraintSpec,
    GenerationResult,
    JsonObjectSpec,
    JsonSchemaSpec,
)

USABLE: Final = "usable"


@dataclass(frozen=True, slots=True)
class LiveVerdict:
    """What an answer was worth, as far as it can be told without its question.

    `loop_period` is that of a loop of tokens, with `loop_share` of all ids. `kept` says whether an
    answer that had to have a form has it; None where none was asked for.
    """

    ending: Ending
    empty: bool
    loop_period: int | None = None
    loop_share: float = 0.0
    kept: bool | None = None

    @property
    def word(self) -> str:
        """`usable`, or the gravest that is against it."""
        if self.loop_period is not None:
            return "loop"
        if self.ending not in UNSUSPECTED:
            return str(self.ending)
        if self.empty:
            return "empty"
        return "contract broken" if self.kept is False else USABLE

    def __str__(self) -> str:
        if self.loop_period is None:
            return self.word if self.word == USABLE else f"not usable: {self.word}"
        unit = "token" if self.loop_period == 1 else "tokens"
        return f"a loop of {self.loop_period} {unit}, {self.loop_share:.0%} of the answer"

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            "verdict": self.word,
            "ending": str(self.ending),
            "empty": self.empty,
            "loop_period": self.loop_period,
            "loop_share": self.loop_share,
            "contract_kept": self.kept,
        }


def live_verdict(
    result: GenerationResult, content: str, constraint: ConstraintSpec | None = None
) -> LiveVerdict:
    """Judge an answer by its ids, its text without thoughts, and the form that was asked for."""
    ids = np.array(result.token_ids, dtype=np.int64)
    cycles = find_cycles(ids, TOKENS.shortest)
    loop = next((cycle for cycle in cycles if TOKENS.holds(cycle, len(ids))), None)
    return LiveVerdict(
        ending=ending_of(StoredResponse("", content, str(result.finish_reason))),
        empty=not content.strip() and not result.tool_calls,
        loop_period=None if loop is None else loop.period,
        loop_share=0.0 if loop is None else loop.length / len(ids),
        kept=_kept(constraint, content),
    )


def _kept(constraint: ConstraintSpec | None, content: str) -> bool | None:
    """Whether the text has the form, of those that can be read again: JSON, and choices.

    That JSON has its schema, the constraint sees to; what can break it is an end before the end.
    """
    if isinstance(constraint, ChoiceSpec):
        return content in constraint.choices
    if not isinstance(constraint, JsonObjectSpec | JsonSchemaSpec):
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) or isinstance(constraint, JsonSchemaSpec)
