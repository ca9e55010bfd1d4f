"""Parameter values: from the text that a model writes to JSON, by the types that are allowed."""

import json
import math
import re
from typing import Any, Final, NoReturn

_INTEGER: Final = re.compile(r"([+-]?[0-9]+)(?:\.0+)?")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# A Python literal's strings and constants. Strings that never end match to the end of the text, so
# that no part of it is read twice.
_PYTHON_WORD: Final = re.compile(
    r"'[^'\\]*(?:\\.[^'\\]*)*(?:'|\\?\Z)"
    r'|"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
    r"|\b(?:True|False|None)\b",
    re.DOTALL,
)
_CONSTANTS: Final = {"True": "true", "False": "false", "None": "null"}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.))|\"", re.DOTALL)
# Levels of nesting that must be left for those who put a value into a message.
_SPARE_LEVELS: Final = 100

_NONE: Final = object()


def typed_value(text: str, types: frozenset[str]) -> Any:
    """The value that `text` spells, tried as null, integer, number, boolean, object, array, string.

    Only the JSON types in `types` are tried. White space around all but strings is ignored. Text
    that fits none of them comes back as it is: whoever runs the tool can say what is wrong with it.
    """
    word = text.strip()
    if "null" in types and word in ("null", "None"):
        return None
    for name, read in (("integer", _integer), ("number", _number)):
        if name in types and (found := read(word)) is not _NONE:
            return found
    if "boolean" in types and word.lower() in ("true", "false"):
        return word.lower() == "true"
    if types == {"boolean"} and word in ("1", "0"):
        return word == "1"
    for name, kind, opener in (("object", dict, "{"), ("array", list, "[")):
        if name in types and word.startswith(opener):
            found = _container(word)
            if isinstance(found, kind):
                return found
    return text


def json_fragment(value: Any) -> str:
    """Compact JSON with all characters kept; only halves of surrogate pairs are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _integer(word: str) -> Any:
    match = _INTEGER.fullmatch(word)
    try:
        return int(match[1]) if match else _NONE
    except ValueError:  # more digits than Python converts
        return _NONE


def _number(word: str) -> Any:
    match = _NUMBER.fullmatch(word)
    if not match:
        return _NONE
    if not match[1] and not match[2]:
        return _integer(word)
    value = float(word)
    return value if math.isfinite(value) else _NONE


def _container(text: str) -> Any:
    found = _json(text)
    return _json(_PYTHON_WORD.sub(_as_json, text)) if found is _NONE else found


def _json(text: str) -> Any:
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        probe = found
        for _ in range(_SPARE_LEVELS):
            probe = [probe]
        json.dumps(probe)
    except (ValueError, RecursionError):
        return _NONE
    return found


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _as_json(match: re.Match[str]) -> str:
    """A string or constant of Python in JSON's spelling; a string without an end stays broken."""
    word = match[0]
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    if len(word) < 2 or word[-1] != word[0]:
        return word
    return '"' + _ESCAPE.sub(_escape_as_json, word[1:-1]) + '"'


def _escape_as_json(match: re.Match[str]) -> str:
    if match[0] == '"':
        return '\\"'
    if match[1]:
        return f"\\u00{match[1]}"
    return "'" if match[2] == "'" else match[0]
