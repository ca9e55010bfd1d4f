"""Termination: how a response ended, in one set of words for all servers."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from ninfer.audit.record import StoredResponse


class Ending(StrEnum):
    """How a response ended."""

    NATURAL = "natural stop"
    STOP_STRING = "stop string"
    LIMIT = "output limit"
    CONTEXT = "context full"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    LOOP_GUARD = "loop guard"
    FILTERED = "content filter"
    ERROR = "error"
    UNKNOWN = "unknown ending"
    NOT_TOLD = "ending not told"


# Endings by which the model, or what was agreed with it, closed the text.
WHOLE: Final = frozenset({Ending.NATURAL, Ending.STOP_STRING})
# Endings that are nothing against a response; some tools do not keep why an answer ended.
UNSUSPECTED: Final = WHOLE | {Ending.NOT_TOLD}

_WORDS: Final = {
    Ending.NATURAL: (
        *("stop", "stop_token", "eos", "end_turn", "tool_calls", "tool_use", "function_call"),
        *("completed", "eos_token"),
    ),
    Ending.STOP_STRING: ("stop_string", "stop_sequence", "word"),
    Ending.LIMIT: ("length", "output_limit", "max_tokens", "limit", "max_output_tokens"),
    Ending.CONTEXT: (
        *("context_capacity", "model_length", "model_context_window_exceeded"),
        "context_length_exceeded",
    ),
    Ending.DEADLINE: ("deadline", "timeout"),
    Ending.CANCELLED: ("cancelled", "canceled", "abort", "aborted"),
    Ending.LOOP_GUARD: ("loop_guard",),
    Ending.FILTERED: ("content_filter", "refusal"),
    Ending.ERROR: ("error", "failed"),
}
_ENDINGS: Final = {word: ending for ending, words in _WORDS.items() for word in words}
_LIMITS: Final = (
    "max_completion_tokens",
    "max_tokens",
    "max_output_tokens",
    "max_new",
    "n_predict",
)


def ending_of(response: StoredResponse) -> Ending:
    """How it ended.

    Servers say `length` of two things: it is the context that was full when fewer tokens came than
    the request allows. They say `stop` of stop strings too, and name the string beside it.
    """
    if response.error is not None:
        return Ending.ERROR
    word = response.finish_reason.strip().lower()
    ending = _ENDINGS.get(word, Ending.UNKNOWN) if word else Ending.NOT_TOLD
    if ending is Ending.NATURAL and isinstance(response.stop, str) and response.stop:
        loop = response.stop == "loop_guard"
        return Ending.LOOP_GUARD if loop else Ending.STOP_STRING
    if ending is Ending.LIMIT:
        allowed, written = output_limit(response.request), response.usage.completion
        if allowed is not None and written is not None and written < allowed:
            return Ending.CONTEXT
    return ending


def is_suspect(response: StoredResponse, ending: Ending) -> bool:
    """Whether the ending is something against the response."""
    return ending not in UNSUSPECTED and not (response.cut and ending is Ending.LIMIT)


def output_limit(request: Mapping[str, Any]) -> int | None:
    """Tokens that a request allows, under the names that protocols have for them."""
    for name in _LIMITS:
        value = request.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def is_empty(response: StoredResponse) -> bool:
    """Whether it says nothing besides its thoughts."""
    return not response.text.strip() and not response.tool_calls
