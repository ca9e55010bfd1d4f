"""Tools of the Responses protocol: flat functions, free-form tools, and namespaces of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ninfer.server.errors import Refusal, wrong
from ninfer.server.tools import Mode, ToolChoice, check_tools

# Run by the provider, or by a client that knows them as such: the model here knows none of them.
HOSTED: Final = (
    "apply_patch",
    "code_interpreter",
    "computer",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "shell",
    "tool_search",
    "web_search",
)
_FREE: Final = {"type": "object", "properties": {"input": {"type": "string"}}}


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as the client knows it."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    """Function tools in their nested form: as `shown` to the model, and as `rules` for its calls,
    which also say what is strict. `offered` is by shown name; `hosted` are types left out."""

    shown: tuple[Mapping[str, Any], ...]
    rules: tuple[Mapping[str, Any], ...]
    offered: Mapping[str, Offered]
    hosted: tuple[str, ...]


def shown_name(name: str, namespace: object = None) -> str:
    """The name by which the model knows a tool of a namespace."""
    return f"{namespace}__{name}" if isinstance(namespace, str) and namespace else name


def tools_of(given: Sequence[Any]) -> Tools:
    """The tools of a request. Raises Refusal naming the first wrong place."""
    rules: list[dict[str, Any]] = []
    offered: dict[str, Offered] = {}
    hosted: list[str] = []
    for tool, place, namespace in _flat(given):
        kind = tool.get("type")
        if isinstance(kind, str) and kind.startswith(HOSTED):
            hosted.append(kind)
            continue
        if kind not in ("function", "custom"):
            raise wrong(f"{place}.type", kind, "use function, custom or namespace")
        nested = tool.get("function")
        fields = nested if isinstance(nested, Mapping) else tool
        name = fields.get("name")
        if not isinstance(name, str):
            raise wrong(f"{place}.name", name, "it must be text")
        shown = shown_name(name, namespace)
        offered[shown] = Offered(name, namespace, kind == "custom")
        about = _free(fields, place) if kind == "custom" else _function(fields, place)
        rules.append({"type": "function", "function": {"name": shown, **about}})
    check_tools(rules)
    return Tools(tuple(map(_without_strict, rules)), tuple(rules), offered, tuple(hosted))


def _flat(given: Sequence[Any]) -> list[tuple[Mapping[str, Any], str, str | None]]:
    """All tools with their places and namespaces."""
    found: list[tuple[Mapping[str, Any], str, str | None]] = []
    for index, tool in enumerate(given):
        place = f"tools[{index}]"
        if not isinstance(tool, Mapping):
            raise wrong(place, tool, "it must be an object")
        if tool.get("type") != "namespace":
            found.append((tool, place, None))
            continue
        name, inner = tool.get("name"), tool.get("tools")
        if not isinstance(name, str):
            raise wrong(f"{place}.name", name, "it must be text")
        if not isinstance(inner, list) or not all(isinstance(item, Mapping) for item in inner):
            raise wrong(f"{place}.tools", inner, "it must be a list of tools")
        found += [(item, f"{place}.tools[{number}]", name) for number, item in enumerate(inner)]
    return found


def _function(fields: Mapping[str, Any], place: str) -> dict[str, Any]:
    about: dict[str, Any] = {}
    if fields.get("description") is not None:
        about["description"] = fields["description"]
    parameters = fields.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise wrong(f"{place}.parameters", parameters, "it must be a JSON Schema object")
    if parameters is not None:
        about["parameters"] = parameters
    return {**about, "strict": bool(fields.get("strict"))}


def _free(fields: Mapping[str, Any], place: str) -> dict[str, Any]:
    """A tool that takes any text, as a function of one text. A grammar of it is only told."""
    words = fields.get("description") or ""
    form = fields.get("format")
    if form is not None and not isinstance(form, Mapping):
        raise wrong(f"{place}.format", form, "it must be an object")
    if form and isinstance(form.get("definition"), str):
        words = f"{words}\n\nThe input follows this grammar:\n{form['definition']}".strip()
    about = {"description": words} if words else {}
    return {**about, "parameters": {**_FREE, "required": ["input"]}}


def _without_strict(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    function = {name: value for name, value in rule["function"].items() if name != "strict"}
    return {**rule, "function": function}


def echo_of(given: Sequence[Any] | None) -> list[Any]:
    """The tools as the answer repeats them."""
    return [
        {"strict": False, "description": None, "parameters": None, **tool}
        if isinstance(tool, Mapping) and tool.get("type") == "function"
        else tool
        for tool in given or ()
    ]


def choice_of(given: object, tools: Tools, *, parallel: bool) -> ToolChoice:
    """What `tool_choice` says. Raises Refusal for anything that cannot be had."""
    if given is None:
        return ToolChoice(parallel=parallel)
    if isinstance(given, str) and given in ("auto", "none", "required"):
        return ToolChoice(cast("Mode", given), parallel=parallel)
    if isinstance(given, Mapping):
        kind = given.get("type")
        if kind == "allowed_tools":
            return _allowed(given, tools, parallel=parallel)
        if kind in ("function", "custom"):
            return ToolChoice("required", (_named(given, tools),), parallel=False)
    raise Refusal(
        f"tool_choice is {str(given)[:80]!r}; use auto, none, required or name a function",
        code="unsupported_value",
        param="tool_choice",
    )


def _allowed(given: Mapping[str, Any], tools: Tools, *, parallel: bool) -> ToolChoice:
    listed = given.get("tools")
    if not isinstance(listed, list):
        raise wrong("tool_choice.tools", listed, "it must be a list")
    names = [
        _named(tool, tools)
        for tool in listed
        if not str(isinstance(tool, Mapping) and tool.get("type")).startswith(HOSTED)
    ]
    if given.get("mode") == "required":
        return ToolChoice("required", tuple(names), parallel)
    # Where nothing that is left may be called, nothing may be.
    return ToolChoice("auto", tuple(names), parallel) if names else ToolChoice("none")


def _named(tool: object, tools: Tools) -> str:
    name = tool.get("name") if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or not isinstance(name, str):
        raise wrong("tool_choice", tool, "name a function")
    shown = shown_name(name, tool.get("namespace"))
    inside = [full for full, offered in tools.offered.items() if offered.name == name]
    return inside[0] if shown not in tools.offered and len(inside) == 1 else shown
