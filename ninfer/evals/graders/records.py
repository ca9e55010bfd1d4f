"""Graders of JSON objects and of records in JSONL, CSV and SQL."""

from collections.abc import Callable
from typing import Any

from ninfer.audit.contracts import (
    ContractCheck,
    RecordContract,
    check_csv,
    check_jsonl,
    check_rows,
    check_sql,
    parse_contract,
)
from ninfer.audit.contracts.parameters import Parameters
from ninfer.errors import UsageError
from ninfer.evals.answer import Answer
from ninfer.json_text import parse_json


def json_object(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """The text is one JSON object: equal to `answer`, or with exactly `fields`."""
    contract_of = parameters.rest("fields")
    wanted = parameters.value("answer", dict, None)
    if (wanted is None) != bool(contract_of):
        raise UsageError(f"{parameters.where}: json_object needs either answer or fields")
    contract = parse_contract(contract_of, parameters.where) if contract_of else None

    def check(answer: Answer) -> tuple[str, ...]:
        try:
            found = parse_json(answer.content, "the answer", UsageError)
        except UsageError as error:
            return (str(error),)
        if not isinstance(found, dict):
            return ("the answer is no JSON object",)
        if contract is None:
            return differences(wanted, found, "answer")
        return check_rows(contract, [("the answer", found)]).reasons

    return check


def differences(wanted: Any, found: Any, where: str) -> tuple[str, ...]:
    """Where JSON values differ, at most one place for each member; 1 equals 1.0, not true."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        missing = tuple(f"{where}.{name} is missing" for name in wanted if name not in found)
        extra = tuple(f"{where}.{name} was not asked for" for name in found if name not in wanted)
        inner = [
            reason
            for name in wanted
            if name in found
            for reason in differences(wanted[name], found[name], f"{where}.{name}")
        ]
        return (*missing, *extra, *inner)
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return tuple(
            reason
            for n, (one, other) in pairs
            for reason in differences(one, other, f"{where}[{n}]")
        )
    same = wanted == found and isinstance(wanted, bool) == isinstance(found, bool)
    return () if same else (f"{where} is {found!r}, not {wanted!r}",)


def jsonl(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """The text is JSONL that keeps the contract."""
    return _kept(parameters, check_jsonl)


def csv(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """The text is CSV that keeps the contract."""
    return _kept(parameters, check_csv)


def sql(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """The text is SQL that keeps the contract."""
    return _kept(parameters, check_sql)


def _kept(
    parameters: Parameters, contract_check: Callable[[str, RecordContract], ContractCheck]
) -> Callable[[Answer], tuple[str, ...]]:
    contract = parse_contract(parameters.rest("fields", "count", "table"), parameters.where)
    rows = parameters.value("rows", list, None)
    if rows is not None and not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{parameters.where}.rows: must hold objects")

    def check(answer: Answer) -> tuple[str, ...]:
        found = contract_check(answer.content, contract)
        if found.reasons or rows is None:
            return found.reasons
        return differences(rows, [dict(row) for row in found.rows], "rows")

    return check
