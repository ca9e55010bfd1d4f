"""The contract of records: which fields of which types, how many records, and nothing else."""

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ninfer.errors import UsageError

# "date" is a text of the form YYYY-MM-DD.
TYPES: Final = ("string", "integer", "number", "boolean", "date")
# Reasons after which a check says no more; a broken answer breaks every line.
MOST_REASONS: Final = 8
_FENCE: Final = "```"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record. `least` and `most` bound numbers; `choices` () means any value."""

    name: str
    type: str
    nullable: bool = False
    unique: bool = False
    choices: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class RecordContract:
    """Records with exactly `fields`; `count` None is any number of them, `table` is for SQL."""

    fields: tuple[Field, ...]
    count: int | None = None
    table: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Field names in the order of the contract."""
        return tuple(field.name for field in self.fields)


@dataclass(frozen=True, slots=True)
class ContractCheck:
    """Why a text breaks its contract, at most MOST_REASONS; empty `reasons` mean that it does not.

    `rows` are the records that could be read, in order, values by field name; `valid` of `wanted`
    records, files or the like are as they should be. `notes` say what was checked with what.
    """

    reasons: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...] = ()
    valid: int | None = None
    wanted: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the contract is kept."""
        return not self.reasons


def parse_contract(values: Mapping[str, Any], where: str) -> RecordContract:
    """A contract from JSON: `fields` (objects with the members of Field), `count`, `table`.

    Raises UsageError naming the wrong member.
    """
    _only(values, ("fields", "count", "table"), where)
    fields = values.get("fields")
    if not isinstance(fields, list) or not fields:
        raise UsageError(f"{where}.fields: must be a list with at least one field")
    parsed = tuple(_field(item, f"{where}.fields[{n}]") for n, item in enumerate(fields))
    names = [field.name for field in parsed]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{where}.fields: {name!r} stands twice")
    count, table = values.get("count"), values.get("table")
    if count is not None and (type(count) is not int or count < 1):
        raise UsageError(f"{where}.count: {count!r} must be a positive whole number")
    if table is not None and (not isinstance(table, str) or not table):
        raise UsageError(f"{where}.table: {table!r} must be a name")
    return RecordContract(parsed, count, table)


def _field(item: Any, where: str) -> Field:
    if not isinstance(item, dict):
        raise UsageError(f"{where}: {item!r} must be an object")
    _only(item, ("name", "type", "nullable", "unique", "choices", "least", "most"), where)
    name, kind, choices = item.get("name"), item.get("type"), item.get("choices", [])
    if not isinstance(name, str) or not name:
        raise UsageError(f"{where}.name: {name!r} must be a text")
    if kind not in TYPES:
        raise UsageError(f"{where}.type: {kind!r} must be one of {', '.join(TYPES)}")
    if not isinstance(choices, list):
        raise UsageError(f"{where}.choices: {choices!r} must be a list")
    return Field(
        name,
        kind,
        nullable=_flag(item, "nullable", where),
        unique=_flag(item, "unique", where),
        choices=tuple(choices),
        least=_bound(item, "least", where),
        most=_bound(item, "most", where),
    )


def _flag(item: Mapping[str, Any], name: str, where: str) -> bool:
    value = item.get(name, False)
    if not isinstance(value, bool):
        raise UsageError(f"{where}.{name}: {value!r} must be true or false")
    return value


def _bound(item: Mapping[str, Any], name: str, where: str) -> float | None:
    value: float | None = item.get(name)
    if value is not None and not is_type(value, "number"):
        raise UsageError(f"{where}.{name}: {value!r} must be a number")
    return value


def _only(values: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for name in values:
        if name not in known:
            raise UsageError(f"{where}.{name}: unknown; known: {', '.join(known)}")


def is_type(value: Any, kind: str) -> bool:
    """Whether a value is of one of TYPES; a boolean is no number, 3.0 is no integer."""
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return type(value) is int
    if kind == "number":
        return type(value) is int or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, str) and (kind == "string" or _is_date(value))


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def body_of(text: str) -> tuple[str, list[str]]:
    """The text less white space at its ends, and what forbids to read records from it."""
    body = text.strip()
    if not body:
        return body, ["the answer is empty"]
    if body.startswith(_FENCE) or body.endswith(_FENCE):
        return body, ["a code fence stands around the records"]
    return body, []


def check_rows(
    contract: RecordContract,
    rows: Sequence[tuple[str, Mapping[str, Any]]],
    reasons: Iterable[str] = (),
) -> ContractCheck:
    """Check read records, each with the name of its place; `reasons` were found while reading."""
    found, valid = list(reasons), 0
    for place, row in rows:
        broken = [f"{place}: {reason}" for reason in _row_reasons(contract, row)]
        valid += not broken
        found += broken
    found += _repeats(contract, rows)
    if contract.count is not None and len(rows) != contract.count:
        found.append(f"{len(rows)} records in place of {contract.count}")
    kept = tuple(row for _, row in rows)
    return ContractCheck(shortened(found), kept, valid=valid, wanted=contract.count)


def shortened(reasons: Sequence[str]) -> tuple[str, ...]:
    """At most MOST_REASONS; the last of them says how many were left out."""
    if len(reasons) <= MOST_REASONS:
        return tuple(reasons)
    return (*reasons[: MOST_REASONS - 1], f"and {len(reasons) - MOST_REASONS + 1} more")


def _row_reasons(contract: RecordContract, row: Mapping[str, Any]) -> Iterable[str]:
    for name in row:
        if name not in contract.names:
            yield f"field {name!r} was not asked for"
    for field in contract.fields:
        if field.name not in row:
            yield f"field {field.name!r} is missing"
        else:
            yield from _value_reasons(field, row[field.name])


def _value_reasons(field: Field, value: Any) -> Iterable[str]:
    if value is None and field.nullable:
        return
    if not is_type(value, field.type):
        yield f"{field.name} is {value!r}, which is no {field.type}"
        return
    if field.choices and value not in field.choices:
        yield f"{field.name} is {value!r}, which is none of the choices"
    if is_type(value, "number"):
        if field.least is not None and value < field.least:
            yield f"{field.name} is {value}, below {field.least:g}"
        if field.most is not None and value > field.most:
            yield f"{field.name} is {value}, above {field.most:g}"


def _repeats(
    contract: RecordContract, rows: Sequence[tuple[str, Mapping[str, Any]]]
) -> Iterable[str]:
    for field in contract.fields:
        seen: set[str] = set()
        for place, row in rows if field.unique else ():
            value = repr(row.get(field.name))
            if value in seen:
                yield f"{place}: {field.name} {value} stands twice"
            seen.add(value)
