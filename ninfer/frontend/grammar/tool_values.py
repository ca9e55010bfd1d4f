"""What the values of tool parameters look like in the XML form: raw strings, or JSON."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ninfer.errors import ConstraintError
from ninfer.frontend.grammar.json_schema import json_text, literal
from ninfer.request import ToolRule

_CLOSER: Final = "\n</parameter>\n"
_KEY: Final = re.compile(r"[^\s<>]{1,256}")
# A set of parameters is counted in the bits of one 64-bit word.
_MAX_PARAMETERS: Final = 64
_MAX_REFERENCES: Final = 32
# The most that a count of the grammar library holds; no answer is that long.
_MAX_LENGTH: Final = 2**32 - 1
# Nested alternatives beyond these are not looked into.
_MAX_BRANCHES: Final = 100
_BRANCHES: Final = ("anyOf", "oneOf", "allOf")
_DEFINITIONS: Final = ("$defs", "definitions")
# Keywords of a raw string that say nothing about it, or that its rule can hold.
_STRING_KEYWORDS: Final = frozenset(
    {"type", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"$comment", "$defs", "definitions", "minLength", "maxLength"}
)
_JSON_TYPES: Final[tuple[tuple[type, str], ...]] = (
    (str, "string"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (dict, "object"),
    (list, "array"),
    (type(None), "null"),
)


@dataclass(frozen=True, slots=True, order=True)
class Lengths:
    """How many characters a raw string may have; `most` -1 for any number."""

    least: int = 0
    most: int = -1

    @property
    def name(self) -> str:
        """The name of the rule for such a string and its closer."""
        return f"text_{self.least}_{self.most}".replace("-1", "any")

    @property
    def rule(self) -> str:
        """The rule: the string ends where the closer first stands."""
        bounds = f"{{{self.least},{'' if self.most < 0 else self.most}}}"
        return f"{self.name}[suffix={literal(_CLOSER)}]: /(?s:.){bounds}/"


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """The parameters of a tool, read from the schema of its arguments.

    `lengths` collects those of the raw strings. `keys` are the declared parameters, `required` ones
    first. `others` is the schema of undeclared ones, None if there are none; a schema that is
    silent about them has none.
    """

    tool: ToolRule
    lengths: set[Lengths]
    keys: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    others: Any = None

    @classmethod
    def of(cls, tool: ToolRule, lengths: set[Lengths]) -> "ToolSchema":
        """Read a tool. Raises ConstraintError for a schema that is not one of named parameters."""
        root = tool.parameters or {}
        where = f"tool {tool.name}"
        properties = root.get("properties") or {}
        required = root.get("required") or ()
        if not isinstance(properties, Mapping) or not _are_names(required):
            raise ConstraintError(
                f"{where}: properties must be an object and required a list of names",
                code="invalid_json_schema",
            )
        first = tuple(dict.fromkeys(required))
        keys = first + tuple(key for key in properties if key not in first)
        for key in keys:
            if not _KEY.fullmatch(key):
                raise ConstraintError(
                    f"{where}: parameter {key!r} is empty or holds white space, '<' or '>'",
                    code="unsupported_json_schema",
                )
        if len(keys) > _MAX_PARAMETERS:
            raise ConstraintError(
                f"{where} has {len(keys)} parameters; at most {_MAX_PARAMETERS} can be enforced",
                code="unsupported_json_schema",
            )
        if tool.strict:
            _check_whole(root, where)
        others = root.get("additionalProperties")
        return cls(tool, lengths, keys, first, properties, None if others is False else others)

    def resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema behind a chain of `$ref` into the tool's own definitions.

        Other members beside a `$ref` keep it as it is.
        """
        for _ in range(_MAX_REFERENCES):
            target = schema.get("$ref")
            _, _, path = target.partition("#/") if isinstance(target, str) else ("", "", "")
            found: Any = self.tool.parameters
            for step in path.split("/") if path else ():
                name = step.replace("~1", "/").replace("~0", "~")
                found = found.get(name) if isinstance(found, Mapping) else None
            if not path or not isinstance(found, Mapping):
                return schema
            beside = {name: value for name, value in schema.items() if name != "$ref"}
            if not beside.keys() <= _STRING_KEYWORDS - {"type", "minLength", "maxLength"}:
                return schema
            schema = found
        return schema


def value_forms(tool: ToolSchema, schema: Any, key: str) -> list[str]:
    """Grammar expressions for a value and its closer, one of which it must follow.

    A value that may be a string stands raw, so everything is one: then only lengths and lists of
    values are enforced. Raises ConstraintError for what a strict tool asks beyond that, and for a
    malformed schema.
    """
    where = f"tool {tool.tool.name}, parameter {key}"
    forms = _forms(tool, schema, where, set())
    return list(dict.fromkeys(forms)) or [_string(tool)]


def _forms(tool: ToolSchema, schema: Any, where: str, seen: set[int]) -> list[str]:
    """As `value_forms`; none for a schema in `seen`, which is a branch already."""
    if isinstance(schema, bool):
        return [_string(tool)]
    if not isinstance(schema, Mapping):
        raise ConstraintError(f"{where}: {schema!r} is no schema", code="invalid_json_schema")
    schema = tool.resolve(schema)
    if id(schema) in seen:
        return []
    members = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(members, list) and members:
        raw = [m if isinstance(m, str) else json.dumps(m, ensure_ascii=False) for m in members]
        return [literal(text + _CLOSER) for text in raw]
    kinds = _kinds(tool, schema, where, set())
    if kinds and "string" not in kinds:
        return [f"%json {_with_definitions(tool, schema, where)} {literal(_CLOSER)}"]
    branches = schema.get("anyOf") or schema.get("oneOf")
    told = _STRING_KEYWORDS - {"type"} | {"anyOf", "oneOf"}
    if isinstance(branches, list) and schema.keys() <= told and len(seen) < _MAX_BRANCHES:
        seen.add(id(schema))
        return [form for branch in branches for form in _forms(tool, branch, where, seen)]
    return [_raw_string(tool, schema, where)]


def _raw_string(tool: ToolSchema, schema: Mapping[str, Any], where: str) -> str:
    beyond = sorted(schema.keys() - _STRING_KEYWORDS)
    if tool.tool.strict and beyond:
        raise ConstraintError(
            f"{where}: {', '.join(beyond)} cannot be enforced on a string",
            code="unsupported_json_schema",
        )
    least, most = schema.get("minLength", 0), schema.get("maxLength", -1)
    if type(least) is not int or type(most) is not int or least < 0 or most < -1:
        raise ConstraintError(
            f"{where}: minLength and maxLength must be whole numbers", code="invalid_json_schema"
        )
    if 0 <= most < least:
        raise ConstraintError(
            f"{where}: minLength {least} is above maxLength {most}",
            code="unsatisfiable_json_schema",
        )
    if least > _MAX_LENGTH:
        raise ConstraintError(
            f"{where}: minLength is above {_MAX_LENGTH}, the most that can be enforced",
            code="unsupported_json_schema",
        )
    return _string(tool, least, most if most <= _MAX_LENGTH else -1)


def _string(tool: ToolSchema, least: int = 0, most: int = -1) -> str:
    lengths = Lengths(least, most)
    tool.lengths.add(lengths)
    return lengths.name


def _with_definitions(tool: ToolSchema, schema: Mapping[str, Any], where: str) -> str:
    root = tool.tool.parameters or {}
    shared = {name: root[name] for name in _DEFINITIONS if name in root}
    return json_text({**shared, **schema}, where, lenient=not tool.tool.strict)


def _kinds(tool: ToolSchema, schema: Any, where: str, seen: set[int]) -> set[str] | None:
    """The JSON types that a schema names; None if it is silent. Each schema counts once."""
    if not isinstance(schema, Mapping):
        return None
    schema = tool.resolve(schema)
    if id(schema) in seen:
        return set()
    named = schema.get("type")
    if named is not None:
        names = [named] if isinstance(named, str) else named
        if not _are_names(names):
            raise ConstraintError(f"{where}: type is {named!r}", code="invalid_json_schema")
        return set(names)
    members = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(members, list):
        return {name for member in members for kind, name in _JSON_TYPES if type(member) is kind}
    seen.add(id(schema))
    kinds: set[str] = set()
    for name in _BRANCHES:
        branches = schema.get(name)
        for branch in branches if isinstance(branches, list) else ():
            found = _kinds(tool, branch, where, seen) if len(seen) < _MAX_BRANCHES else None
            if found is None:
                return None
            kinds |= found
    return kinds or None


def _check_whole(root: Mapping[str, Any], where: str) -> None:
    """Refuse what a strict schema says about its parameters together."""
    known = {"type", "properties", "required", "additionalProperties", "$schema", "$id"}
    beyond = sorted(root.keys() - known - _STRING_KEYWORDS)
    if beyond:
        raise ConstraintError(
            f"{where}: {', '.join(beyond)} cannot be enforced on the arguments as a whole",
            code="unsupported_json_schema",
        )


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
