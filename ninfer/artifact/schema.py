"""Strict reads from the JSON of a directory; every error names the place."""

import json
import math
from collections import Counter
from collections.abc import Container
from typing import Any, Final

from ninfer.artifact.layouts import MAX_SIZE
from ninfer.errors import DirectoryError, FramingError

# Open members may nest; legal ones nest a few levels.
_MAX_DEPTH: Final = 64


def load_json(text: bytes) -> object:
    """One JSON document in UTF-8 whose member names are unique within their object.

    Raises FramingError for anything else, numbers that are not finite included.
    """
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FramingError(f"directory is not UTF-8 at byte {error.start}") from None
    try:
        return json.loads(
            decoded,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except RecursionError:
        raise FramingError("directory is not usable JSON: nested too deeply") from None
    except ValueError as error:
        # Besides syntax errors: an integer with more digits than Python will convert.
        raise FramingError(f"directory is not valid JSON: {error}") from None


def encode_json(root: object) -> bytes:
    """Compact JSON in UTF-8. Raises DirectoryError for a name that has no UTF-8 form."""
    text = json.dumps(root, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DirectoryError(
            f"a name holds {error.object[error.start]!r}, a lone surrogate"
        ) from None


def members(
    value: object, wanted: tuple[str, ...], where: str, *, optional: Container[str] = ()
) -> dict[str, Any]:
    """`value` as an object with the wanted members, and no others but optional ones."""
    found = json_object(value, where)
    for name in wanted:
        if name not in found:
            raise DirectoryError(f"{where} lacks the member {name!r}")
    if len(found) > len(wanted):
        for name in found:
            if name not in wanted and name not in optional:
                raise DirectoryError(f"{where} has an unknown member {name!r}")
    return found


def json_object(value: object, where: str) -> dict[str, Any]:
    """`value` as an object with any members."""
    if not isinstance(value, dict):
        raise DirectoryError(f"{where} must be a JSON object, got {kind(value)}")
    return value


def array(value: object, where: str) -> list[Any]:
    """`value` as an array."""
    if not isinstance(value, list):
        raise DirectoryError(f"{where} must be an array, got {kind(value)}")
    return value


def shape(value: object, where: str) -> tuple[int, ...]:
    """`value` as the sizes of a tensor, all positive."""
    sizes = array(value, f"{where}: shape")
    return tuple(integer(size, 1, f"{where}: shape[{i}]") for i, size in enumerate(sizes))


def integer(value: object, least: int, where: str) -> int:
    """`value` as a whole number that is not below `least` and fits 63 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise DirectoryError(f"{where} must be an integer, got {kind(value)}")
    if not least <= value <= MAX_SIZE:
        shown = value if abs(value) < 1 << 128 else "a very large number"
        raise DirectoryError(f"{where} must lie in {least}..2**63 - 1, got {shown}")
    return value


def text(value: object, where: str) -> str:
    """`value` as a non-empty string that has a UTF-8 form."""
    if not isinstance(value, str) or not value:
        raise DirectoryError(f"{where} must be a non-empty string, got {kind(value)}")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise DirectoryError(f"{where} holds a lone surrogate, which has no UTF-8 form")
    return value


def label(value: object, where: str) -> str:
    """`value` as a `text` without a null character, as v3 asks of names and ids."""
    found = text(value, where)
    if "\x00" in found:
        raise DirectoryError(f"{where} holds a null character")
    return found


def open_object(value: object, where: str) -> dict[str, Any]:
    """`value` as an object whose content is not interpreted, only bounded in depth and letters."""
    found = json_object(value, where)
    _check_open(found, where, 0)
    return found


def kind(value: object) -> str:
    """JSON's word for the type of a value."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str) and not value:
        return "an empty string"
    names = {dict: "an object", list: "an array", str: "a string", int: "an integer"}
    return names.get(type(value), "a float")


def _check_open(value: object, where: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise DirectoryError(f"{where} is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, str) and value:
        text(value, where)
    elif isinstance(value, list):
        for item in value:
            _check_open(item, where, depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_open(name, where, depth + 1)
            _check_open(item, where, depth + 1)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        count = Counter(name for name, _ in pairs)
        twice = next(name for name in count if count[name] > 1)
        raise FramingError(f"directory has the JSON member {twice!r} twice in one object")
    return found


def _no_constant(word: str) -> object:
    raise FramingError(f"directory holds {word}, which is not JSON")


def _finite(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise FramingError(f"directory holds the number {word[:40]}, which no reader can represent")
    return value
