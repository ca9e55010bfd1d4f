"""Strict JSON reading for everything that comes from outside: one clear error, no surprises."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from ninfer.errors import NInferError


def parse_json(text: str | bytes, where: str, error: type[NInferError]) -> Any:
    """The value of a JSON text.

    Raises `error`, naming `where`, for text that is not UTF-8 or not JSON, for a member name that
    stands twice in an object, for NaN and infinities, and for nesting too deep to read.
    """

    def members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise error(f"{where}: member {twice!r} stands twice in one object")
        return found

    def constant(name: str) -> NoReturn:
        raise error(f"{where}: {name} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=members, parse_constant=constant)
    except UnicodeDecodeError as cause:
        raise error(f"{where}: not UTF-8 text at byte {cause.start}") from None
    except ValueError as cause:
        raise error(f"{where}: not JSON: {cause}") from None
    except RecursionError:
        raise error(f"{where}: nested too deeply") from None
