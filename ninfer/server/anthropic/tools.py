"""Tools and tool choice of the Anthropic protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ninfer.server.anthropic.client_tools import CLIENT_TOOLS
from ninfer.server.anthropic.schema import ChoiceFields
from ninfer.server.errors import Refusal, wrong
from ninfer.server.tools import Mode, ToolChoice, check_tools

_MODES: Final[dict[str, Mode]] = {
    "auto": "auto",
    "any": "required",
    "tool": "required",
    "none": "none",
}


@dataclass(frozen=True, slots=True)
class Tools:
    """Function tools in their nested form: as `shown` to the model, and as `rules` for its calls,
    which also say what is strict. `hosted` are the names and types of those left out."""

    shown: tuple[Mapping[str, Any], ...]
    rules: tuple[Mapping[str, Any], ...]
    hosted: Mapping[str, str]


def tools_of(given: Sequence[Any]) -> Tools:
    """The tools of a request. Those that only the provider could run are left out.

    Raises Refusal naming the first wrong place.
    """
    shown, rules, hosted = [], [], {}
    for index, tool in enumerate(given):
        place = f"tools.{index}"
        if not isinstance(tool, Mapping):
            raise wrong(place, tool, "it must be an object")
        kind = tool.get("type")
        if kind is not None and not isinstance(kind, str):
            raise wrong(f"{place}.type", kind, "it must be text")
        name = tool.get("name")
        if kind not in (None, "custom") and "input_schema" not in tool and not _known(kind):
            hosted[name if isinstance(name, str) else kind] = kind
            continue
        if not isinstance(name, str):
            raise wrong(f"{place}.name", name, "it must be text")
        function = {"name": name, **_described(tool, place)}
        shown.append({"type": "function", "function": function})
        rules.append({"type": "function", "function": {**function, "strict": tool.get("strict")}})
    check_tools(shown)
    return Tools(tuple(shown), tuple(rules), hosted)


def _known(kind: str) -> bool:
    return kind.startswith(tuple(CLIENT_TOOLS))


def _described(tool: Mapping[str, Any], place: str) -> dict[str, Any]:
    for prefix, (description, schema) in CLIENT_TOOLS.items():
        if "input_schema" not in tool and str(tool.get("type")).startswith(prefix):
            return {"description": description, "parameters": schema}
    given = tool.get("input_schema")
    if given is not None and not isinstance(given, Mapping):
        raise wrong(f"{place}.input_schema", given, "it must be a JSON Schema object")
    parameters = {"type": "object", "properties": {}} if given is None else given
    words = tool.get("description")
    if words is None:
        return {"parameters": parameters}
    if not isinstance(words, str):
        raise wrong(f"{place}.description", words, "it must be text")
    return {"description": words, "parameters": parameters}


def choice_of(given: ChoiceFields | None, tools: Tools) -> ToolChoice:
    """What `tool_choice` says.

    A call of what was left out is not asked for: a client that offers a web search alone wants an
    answer in any case. Raises Refusal for a choice of a tool without its name.
    """
    if given is None:
        return ToolChoice()
    parallel = not given.disable_parallel_tool_use
    mode = _MODES[given.type]
    if given.type == "tool":
        if given.name is None:
            raise Refusal(
                "tool_choice.name is missing; name the tool",
                code="missing_required_parameter",
                param="tool_choice.name",
            )
        if given.name not in tools.hosted:
            return ToolChoice(mode, (given.name,), parallel=False)
        mode = "auto"
    if tools.hosted and not tools.shown:
        mode = "auto"
    return ToolChoice(mode, parallel=parallel)
