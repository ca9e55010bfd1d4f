"""One checker for each kind of contract that an answer may have been asked to keep."""

from ninfer.audit.contracts.checks import KINDS, parse_check
from ninfer.audit.contracts.csv import check_csv
from ninfer.audit.contracts.jsonl import check_jsonl
from ninfer.audit.contracts.length import UNITS, count_units
from ninfer.audit.contracts.prose import Check
from ninfer.audit.contracts.records import (
    ContractCheck,
    Field,
    RecordContract,
    check_rows,
    parse_contract,
)
from ninfer.audit.contracts.sql import check_sql

__all__ = [
    "KINDS",
    "UNITS",
    "Check",
    "ContractCheck",
    "Field",
    "RecordContract",
    "check_csv",
    "check_jsonl",
    "check_rows",
    "check_sql",
    "count_units",
    "parse_check",
    "parse_contract",
]
