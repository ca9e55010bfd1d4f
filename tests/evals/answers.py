"""Answers as graders and runners get them, made by hand."""

from collections.abc import Mapping
from typing import Any

from ninfer.evals import Answer
from ninfer.request import FinishReason, ToolCall


def answer_of(
    content: str = "",
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = (),
    finish: FinishReason = FinishReason.STOP_TOKEN,
    tokens: int = 3,
) -> Answer:
    """An answer that ended by itself unless `finish` says otherwise."""
    return Answer(
        content=content,
        reasoning="",
        tool_calls=tuple(ToolCall(name, arguments) for name, arguments in calls),
        finish_reason=finish,
        prompt_tokens=5,
        reasoning_tokens=0,
        token_ids=tuple(range(tokens)),
        seconds=0.25,
    )
