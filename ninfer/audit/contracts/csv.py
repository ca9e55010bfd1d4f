"""CSV as RFC 4180 has it: a header line, then one line for each record, quotes doubled."""

import re
from collections.abc import Mapping
from typing import Any, Final

from ninfer.audit.contracts.records import (
    ContractCheck,
    Field,
    RecordContract,
    body_of,
    check_rows,
)

# Stricter than the csv module, which takes a quote inside an unquoted field.
_CELL: Final = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n]*))(,|\r?\n|\Z)')
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?")


def check_csv(text: str, contract: RecordContract) -> ContractCheck:
    """Check an answer: the header has the contract's names in its order.

    An empty cell is null where the field may be null, and an empty string otherwise.
    """
    body, reasons = body_of(text)
    if reasons:
        return ContractCheck(tuple(reasons))
    lines, broken = read_cells(body)
    if broken:
        return ContractCheck((broken,))
    header, *records = lines
    if tuple(header) != contract.names:
        return ContractCheck((f"the header is {header}, not {list(contract.names)}",))
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for number, cells in enumerate(records, 1):
        place = f"record {number}"
        if len(cells) != len(contract.fields):
            reasons.append(f"{place}: {len(cells)} cells in place of {len(contract.fields)}")
            continue
        pairs = zip(contract.fields, cells, strict=True)
        rows.append((place, {field.name: _value(field, cell) for field, cell in pairs}))
    return check_rows(contract, rows, reasons)


def read_cells(text: str) -> tuple[list[list[str]], str]:
    """The cells of each line, and what is wrong with the quotes of the line where reading ends."""
    lines: list[list[str]] = [[]]
    place = 0
    while True:
        match = _CELL.match(text, place)
        if match is None:
            return lines, f"line {len(lines)}: a quote is not closed, or not doubled, or misplaced"
        quoted, plain, end = match.groups()
        lines[-1].append(plain if quoted is None else quoted.replace('""', '"'))
        place = match.end()
        if end == "" or (end != "," and place == len(text)):
            return lines, ""
        if end != ",":
            lines.append([])


def _value(field: Field, cell: str) -> Any:
    """The value that a cell spells for its field; the bare text where it spells none."""
    if cell == "" and field.nullable:
        return None
    if field.type == "boolean" and cell in ("true", "false"):
        return cell == "true"
    if field.type in ("integer", "number") and _INTEGER.fullmatch(cell):
        return int(cell)
    if field.type == "number" and _NUMBER.fullmatch(cell):
        return float(cell)
    return cell
