"""JSONL: one JSON object on each line, nothing between, before or behind."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ninfer.audit.contracts.records import ContractCheck, RecordContract, body_of, check_rows


def check_jsonl(text: str, contract: RecordContract) -> ContractCheck:
    """Check an answer. The order of an object's members is free, their names are not."""
    body, reasons = body_of(text)
    if reasons:
        return ContractCheck(tuple(reasons))
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for number, line in enumerate(body.split("\n"), 1):
        place = f"line {number}"
        if not line.strip():
            reasons.append(f"{place}: empty")
            continue
        try:
            value = json.loads(line, object_pairs_hook=_members, parse_constant=_constant)
        except (ValueError, RecursionError) as error:
            reasons.append(f"{place}: not JSON: {error}")
            continue
        if isinstance(value, dict):
            rows.append((place, value))
        else:
            reasons.append(f"{place}: no object")
    return check_rows(contract, rows, reasons)


def _members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member stands twice in one object")
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
