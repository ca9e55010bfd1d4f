"""Reading members of foreign JSON: what is missing or of another type counts as not told."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def inner(values: Any, *names: str) -> Mapping[str, Any]:
    """The object below these members, or an empty one."""
    for name in names:
        values = values.get(name) if isinstance(values, Mapping) else None
    return values if isinstance(values, Mapping) else {}


def listed(values: Any, name: str) -> Sequence[Any]:
    """A list, or an empty one."""
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, list) else ()


def word(values: Any, *names: str) -> str:
    """The first of these members that is a text, or ""."""
    for name in names:
        value = values.get(name) if isinstance(values, Mapping) else None
        if isinstance(value, str):
            return value
    return ""


def number(values: Any, *names: str) -> float | None:
    """The first of these members that is a finite number."""
    for name in names:
        value = values.get(name) if isinstance(values, Mapping) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return value
    return None


def whole(values: Any, *names: str) -> int | None:
    """The first of these members that is a number, without its fraction."""
    value = number(values, *names)
    return None if value is None else int(value)


def seconds(values: Any, name: str) -> float | None:
    """Milliseconds as seconds."""
    value = number(values, name)
    return None if value is None else value / 1000
