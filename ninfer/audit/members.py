"""JSON objects to frozen dataclasses: each member has the type of its field, none is unknown."""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from ninfer.errors import UsageError

T = TypeVar("T")


def built(kind: type[T], values: Any, where: str) -> T:
    """An instance of a dataclass; members left out have the field's default.

    Raises UsageError naming place, member and value.
    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{where}: {values!r:.80} must be an object")
    hints, required = _fields(typing.cast(Any, kind))
    for name in values:
        if name not in hints:
            raise UsageError(f"{where}.{name}: unknown; known: {', '.join(hints)}")
    for name in required:
        if name not in values:
            raise UsageError(f"{where}.{name}: missing")
    return kind(**{name: _value(hints[name], v, f"{where}.{name}") for name, v in values.items()})


@cache
def _fields(kind: type[Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    hints = typing.get_type_hints(kind)
    required = tuple(
        spec.name
        for spec in fields(kind)
        if spec.default is MISSING and spec.default_factory is MISSING
    )
    return hints, required


def _value(hint: Any, value: Any, where: str) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in inner:
            return None
        wanted = [kind for kind in inner if kind is not type(None)]
        if len(wanted) == 1:
            return _value(wanted[0], value, where)
        return _plain(tuple(wanted), value, where)
    if origin is tuple:
        return _listed(inner, value, where)
    if is_dataclass(hint):
        return built(typing.cast("type[Any]", hint), value, where)
    return _plain((origin or hint,), value, where)


def _listed(inner: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise UsageError(f"{where}: {value!r:.80} must be a list")
    if inner[-1] is not Ellipsis:
        if len(value) != len(inner):
            raise UsageError(f"{where}: {value!r:.80} must hold {len(inner)} values")
        pairs = enumerate(zip(inner, value, strict=True))
        return tuple(_value(kind, item, f"{where}[{n}]") for n, (kind, item) in pairs)
    if inner[0] is int:  # token ids: many, and checked at once
        if not all(type(item) is int for item in value):
            raise UsageError(f"{where}: must hold whole numbers only")
        return tuple(value)
    return tuple(_value(inner[0], item, f"{where}[{n}]") for n, item in enumerate(value))


def _plain(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """A value of one of these types; a whole number is a number, a boolean is neither."""
    if float in kinds and type(value) is int:
        return float(value) if int not in kinds else value
    if isinstance(value, bool) and bool not in kinds and Any not in kinds:
        kinds_met = False
    else:
        kinds_met = Any in kinds or isinstance(value, kinds)
    if not kinds_met:
        words = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        raise UsageError(f"{where}: {value!r:.80} must be of type {words}")
    return value
