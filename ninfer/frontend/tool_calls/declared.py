"""What a request's tools declare: names, parameters, and the JSON types of their values."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

_TYPES: Final = frozenset({"null", "integer", "number", "boolean", "object", "array", "string"})
_STRING: Final = frozenset({"string"})
_BRANCHES: Final = ("anyOf", "oneOf", "allOf")
# Keywords that speak of one type only.
_TELLING: Final = {"properties": "object", "items": "array", "prefixItems": "array"}


class ToolParameters:
    """The parameters of one tool, by the JSON Schema of its arguments.

    Reading never fails: what is malformed says nothing, and then a value is a string.
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema

    def declares(self, key: str) -> bool:
        """Whether the schema names the parameter."""
        return any(key in properties for _, properties in self._objects())

    def types(self, key: str) -> frozenset[str]:
        """The JSON types that a value may have: those of its schema, or of `additionalProperties`
        for an undeclared parameter; a string where nothing is said.
        """
        others: Any = None
        for schema, properties in self._objects():
            if key in properties:
                return _types(properties[key], self._root) or _STRING
            others = others or schema.get("additionalProperties")
        return _types(others, self._root) or _STRING

    def _objects(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """The schemas that describe the arguments together, with their properties."""
        waiting, seen = [self._root], set[int]()
        while waiting:
            schema = waiting.pop(0)
            if isinstance(schema, Mapping) and id(schema) not in seen:
                seen.add(id(schema))
                properties = schema.get("properties")
                yield schema, properties if isinstance(properties, Mapping) else {}
                waiting += _branches(schema, self._root)


def declared_tools(tools: Iterable[Mapping[str, Any]]) -> dict[str, ToolParameters]:
    """The function tools of a request by name; `tools` are the client's objects."""
    found: dict[str, ToolParameters] = {}
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            found[function["name"]] = ToolParameters(function.get("parameters"))
    return found


def _types(schema: Any, root: Any) -> frozenset[str]:
    """The types that a schema, or what it refers to or combines, names; each schema counts once."""
    found: set[str] = set()
    waiting, seen = [schema], set[int]()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        own = _own_types(part)
        found |= own
        if not own:
            waiting += _branches(part, root)
    return frozenset(found)


def _own_types(schema: Mapping[str, Any]) -> set[str]:
    named = schema.get("type")
    names = named if isinstance(named, list | tuple) else [named]
    found = {name for name in names if isinstance(name, str)} & _TYPES
    if found:
        return found
    members = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(members, list | tuple) and members:
        return {_type_of(member) for member in members}
    if any(name in schema for name in ("$ref", *_BRANCHES)):
        return set()
    return {kind for name, kind in _TELLING.items() if name in schema}


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def _branches(schema: Mapping[str, Any], root: Any) -> list[Any]:
    """What `$ref` leads to and the members of anyOf, oneOf and allOf."""
    found = []
    if isinstance(schema.get("$ref"), str):
        found.append(_resolve(schema["$ref"], root))
    for name in _BRANCHES:
        members = schema.get(name)
        found += members if isinstance(members, list | tuple) else []
    return found


def _resolve(reference: str, root: Any) -> Any:
    """What a JSON pointer into the tool's own schema leads to; None if nothing."""
    document, _, path = reference.partition("#")
    if document:
        return None
    found = root
    for step in unquote(path).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, list | tuple) and name.isdecimal() and len(name) < 10:
            found = found[int(name)] if int(name) < len(found) else None
        else:
            return None
    return found
