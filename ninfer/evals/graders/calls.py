"""Grader of tool calls: names and arguments, in order."""

from collections.abc import Callable
from typing import Any

from ninfer.audit.contracts.parameters import Parameters
from ninfer.errors import UsageError
from ninfer.evals.answer import Answer
from ninfer.evals.graders.records import differences


def tool_calls(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """The calls are `calls`; text beside them is free."""
    wanted = [
        _wanted(call, f"{parameters.where}.calls[{n}]")
        for n, call in enumerate(parameters.value("calls", list))
    ]

    def check(answer: Answer) -> tuple[str, ...]:
        found = [
            {"name": call.name, "arguments": dict(call.arguments)} for call in answer.tool_calls
        ]
        if len(found) != len(wanted):
            names = ", ".join(call.name for call in answer.tool_calls) or "none"
            return (f"{len(found)} calls ({names}) in place of {len(wanted)}",)
        return differences(wanted, found, "calls")

    return check


def _wanted(call: Any, where: str) -> dict[str, Any]:
    if not isinstance(call, dict) or set(call) != {"name", "arguments"}:
        raise UsageError(f"{where}: {call!r} must be an object with name and arguments")
    if not isinstance(call["name"], str) or not isinstance(call["arguments"], dict):
        raise UsageError(f"{where}: the name must be a text, the arguments an object")
    return call
