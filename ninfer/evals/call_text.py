"""Tool calls in the XML form of the Qwen templates, read from a whole answer."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ninfer.errors import UsageError
from ninfer.json_text import parse_json
from ninfer.request import ToolCall

_CALL: Final = re.compile(
    r"<tool_call>\s*<function=([^>\s]+)>\s*(.*?)</function>\s*</tool_call>", re.DOTALL
)
_PARAMETER: Final = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)


def read_calls(text: str, tools: Sequence[Mapping[str, Any]]) -> tuple[str, tuple[ToolCall, ...]]:
    """The text without its calls, and the calls; without `tools` tags are plain text.

    A value is a string where the tool's schema says so or nothing, and JSON elsewhere.
    """
    if not tools:
        return text, ()
    schemas = {tool["function"]["name"]: _properties(tool["function"]) for tool in tools}
    calls = tuple(
        ToolCall(name, {key: _value(value, schemas.get(name, {}).get(key)) for key, value in found})
        for name, found in ((m[1], _PARAMETER.findall(m[2])) for m in _CALL.finditer(text))
    )
    return _CALL.sub("", text).strip() if calls else text, calls


def _properties(function: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = function.get("parameters")
    found = parameters.get("properties") if isinstance(parameters, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _value(text: str, schema: Any) -> Any:
    if not isinstance(schema, Mapping) or schema.get("type", "string") == "string":
        return text
    try:
        return parse_json(text, "value", UsageError)
    except UsageError:
        return text
