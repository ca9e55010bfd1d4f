"""Tools and what a client says about calling them, to a constraint on the answer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ninfer.engine import GenerationOptions, TextSide
from ninfer.log import get_logger
from ninfer.request import (
    ConstraintSpec,
    JsonObjectSpec,
    JsonSchemaSpec,
    LogitBias,
    ToolCallSpec,
    ToolRule,
)
from ninfer.server.errors import Refusal

Mode = Literal["auto", "none", "required"]
_OPENER: Final = "<tool_call>"
_NEVER: Final = -100.0
_NAME: Final = re.compile(r"[^\s<>]{1,128}")
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether and what to call. `names` are the only tools that may be called; None: all."""

    mode: Mode = "auto"
    names: tuple[str, ...] | None = None
    parallel: bool = True

    def __str__(self) -> str:
        return self.mode if self.names is None else f"{self.mode}:{','.join(self.names)}"


def check_tools(tools: Sequence[Mapping[str, Any]]) -> None:
    """Check names and parameters of function tools in their nested form.

    Raises Refusal naming the place.
    """
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        name, where = tool["function"]["name"], f"tools[{index}].function.name"
        if not _NAME.fullmatch(name):
            raise Refusal(
                f"{where} is {name[:80]!r}; a name has 1 to 128 characters without white space, "
                "< and >",
                code="unsupported_value",
                param=where,
            )
        if name in seen:
            raise Refusal(
                f"{where} is {name!r}, which another tool has too; give each its own name",
                code="unsupported_value",
                param=where,
            )
        seen.add(name)
        parameters = tool["function"].get("parameters")
        if parameters is not None and not isinstance(parameters, Mapping):
            place = f"tools[{index}].function.parameters"
            raise Refusal(
                f"{place} is {str(parameters)[:80]}; it must be a JSON Schema object",
                code="invalid_type",
                param=place,
            )


def without_hosted(tools: Sequence[Any], hosted: Sequence[str]) -> list[Any]:
    """The tools that are not run by the provider: those cannot be had here, and are left out."""
    kept = []
    for tool in tools:
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        if isinstance(kind, str) and kind.startswith(tuple(hosted)):
            _log.info("a tool of type %s is left out: only the provider could run it", kind[:80])
        else:
            kept.append(tool)
    return kept


def check_choice(choice: ToolChoice, tools: Sequence[Mapping[str, Any]]) -> None:
    """Raises Refusal for a forced call without tools, or of a tool that is not there."""
    known = {tool["function"]["name"] for tool in tools}
    for name in choice.names or ():
        if name not in known:
            raise Refusal(
                f"tool_choice names {name[:80]!r}, which is none of the tools",
                code="unsupported_value",
                param="tool_choice",
            )
    if choice.mode == "required" and not known:
        raise Refusal(
            "tool_choice asks for a call, and there are no tools",
            code="unsupported_value",
            param="tool_choice",
        )


def constraint_of(
    tools: Sequence[Mapping[str, Any]], choice: ToolChoice, answer: ConstraintSpec | None
) -> ConstraintSpec | None:
    """What the answer has to follow; `answer` is the form of one without calls.

    Tools are in their nested form and checked. Raises Refusal for a form that has no room for
    calls.
    """
    if not tools or choice.mode == "none":
        return answer
    functions = [tool["function"] for tool in tools]
    rules = tuple(
        ToolRule(f["name"], f.get("parameters") or None, strict=bool(f.get("strict")))
        for f in functions
        if choice.names is None or f["name"] in choice.names
    )
    if choice.mode == "required":
        return ToolCallSpec(rules, required=True, parallel=choice.parallel)
    if answer is not None and not isinstance(answer, JsonObjectSpec | JsonSchemaSpec):
        raise Refusal(
            "an answer of this form leaves no room for tool calls; use JSON, or set tool_choice to "
            '"none"',
            code="unsupported_value",
            param="tool_choice",
        )
    free = choice.parallel and choice.names is None and not any(rule.strict for rule in rules)
    if free and answer is None:
        return None
    return ToolCallSpec(rules, parallel=choice.parallel, answer=answer)


def without_calls(
    options: GenerationOptions,
    tools: Sequence[Mapping[str, Any]],
    choice: ToolChoice,
    text: TextSide,
) -> tuple[GenerationOptions, bool]:
    """What keeps a model from calling the tools that it sees, for the choice "none"."""
    if choice.mode != "none" or not tools:
        return options, False
    opener = text.added_id(_OPENER)
    if opener is not None and all(bias.token_id != opener for bias in options.logit_bias):
        bias = (*options.logit_bias, LogitBias(opener, _NEVER))
        options = replace(options, logit_bias=bias)
    return options, True
