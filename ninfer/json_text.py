"""Strict JSON reading for everything that comes from outside: one clear error, no surprises."""

import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

from ninfer.errors import NInferError


def parse_json(text: str | bytes, where: str, error: type[NInferError]) -> Any:
    """The value of a JSON text.

    Raises `error`, naming `where`, for text that is not UTF-8 or not JSON, for a member name that
    stands twice in an object, for NaN and infinities, and for nesting too deep to read.
    """

    def members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise error(f"{where}: member {_short(name)} stands twice in one object")
            found[name] = value
        return found

    def constant(name: str) -> NoReturn:
        raise error(f"{where}: {name} is not JSON")

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise error(f"{where}: {_short(digits)} is too large a number")
        return value

    try:
        return json.loads(
            text, object_pairs_hook=members, parse_constant=constant, parse_float=number
        )
    except UnicodeDecodeError as cause:
        raise error(f"{where}: not UTF-8 text at byte {cause.start}") from None
    except ValueError as cause:
        # Besides syntax errors: a whole number with more digits than Python converts.
        raise error(f"{where}: not JSON: {cause}") from None
    except RecursionError:
        raise error(f"{where}: nested too deeply") from None


def _short(text: str, limit: int = 80) -> str:
    """A quoted text for a message, cut when it is long."""
    return repr(text if len(text) <= limit else text[:limit] + "...")
