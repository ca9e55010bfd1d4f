"""Records to a given schema and count, as JSONL, CSV or SQL; and single JSON objects."""

import csv
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recipes.tiny.sample import Sample
from recipes.tiny.tasks.frame import answered, maybe
from recipes.tiny.words import (
    ANIMALS,
    CITIES,
    COLOURS,
    COUNTRIES,
    FRUITS,
    JOBS,
    NAMES,
    OBJECTS,
    words,
)

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Field:
    """A column: its type is "string", "integer", "number" or "boolean"."""

    name: str
    type: str


_TABLES: Final = words(
    "people customers products orders books animals cities users items employees students houses"
    " cars shops"
)
_WORDS_OF: Final[dict[str, Sequence[str]]] = {
    "name": NAMES,
    "first_name": NAMES,
    "owner": NAMES,
    "author": NAMES,
    "city": CITIES,
    "town": CITIES,
    "country": COUNTRIES,
    "colour": COLOURS,
    "fruit": FRUITS,
    "product": OBJECTS,
    "item": OBJECTS,
    "animal": ANIMALS,
    "job": JOBS,
    "status": ("new", "open", "closed", "ready", "sold"),
    "size": ("small", "medium", "large"),
}
# Ranges of whole numbers.
_INTEGERS: Final = {
    "id": (1, 999),
    "age": (1, 90),
    "count": (0, 50),
    "quantity": (1, 99),
    "year": (1950, 2025),
    "floor": (0, 9),
    "score": (0, 100),
    "pages": (20, 900),
    "seats": (2, 80),
    "level": (1, 10),
}
# Ranges in hundredths.
_NUMBERS: Final = {
    "price": (100, 9999),
    "weight": (50, 9000),
    "height": (100, 250),
    "rate": (0, 500),
    "distance": (100, 90000),
    "total": (500, 99999),
}
_BOOLEANS: Final = words("in_stock active paid member open sold ready")
_NAMES_OF: Final[dict[str, Sequence[str]]] = {
    "string": tuple(_WORDS_OF),
    "integer": tuple(_INTEGERS),
    "number": tuple(_NUMBERS),
    "boolean": _BOOLEANS,
}


def schema(rng: random.Random, low: int = 2, high: int = 5) -> list[Field]:
    """Different fields, a string among them; numbers may be asked for as integers."""
    chosen: dict[str, Field] = {}
    wanted = rng.randint(low, high)
    while len(chosen) < wanted:
        kind = rng.choices(tuple(_NAMES_OF), (4, 3, 2, 2))[0] if chosen else "string"
        name = rng.choice(_NAMES_OF[kind])
        if kind == "number" and rng.random() < 0.15:
            kind = "integer"
        chosen[name] = Field(name, kind)
    fields = list(chosen.values())
    rng.shuffle(fields)
    return fields


def value(rng: random.Random, field: Field) -> Value:
    """A value that fits name and type."""
    if field.type == "string":
        return rng.choice(_WORDS_OF[field.name])
    if field.type == "boolean":
        return rng.random() < 0.5
    if field.name in _INTEGERS:
        return rng.randint(*_INTEGERS[field.name])
    hundredths = rng.randint(*_NUMBERS[field.name])
    return hundredths // 100 if field.type == "integer" else (hundredths | 1) / 100


def as_jsonl(table: str, fields: Sequence[Field], rows: Sequence[Sequence[Value]]) -> str:
    """One object a line."""
    names = [field.name for field in fields]
    return "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows)


def as_csv(table: str, fields: Sequence[Field], rows: Sequence[Sequence[Value]]) -> str:
    """Header and rows; booleans as in JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in fields])
    writer.writerows([[_plain(item) for item in row] for row in rows])
    return out.getvalue().rstrip("\n")


def as_sql(table: str, fields: Sequence[Field], rows: Sequence[Sequence[Value]]) -> str:
    """One INSERT statement a row."""
    names = ", ".join(field.name for field in fields)
    lines = []
    for row in rows:
        values = ", ".join(
            f"'{item}'" if isinstance(item, str) else _plain(item).upper() for item in row
        )
        lines.append(f"INSERT INTO {table} ({names}) VALUES ({values});")
    return "\n".join(lines)


def _plain(item: Value) -> str:
    return json.dumps(item) if isinstance(item, bool) else str(item)


Writer = Callable[[str, Sequence[Field], Sequence[Sequence[Value]]], str]

_QUESTIONS: Final = (
    "Write {count} {format} for the table {table} with the fields {fields}. {only}",
    "Give me {count} {format} of {table}. Fields: {fields}. {only}",
    "Table {table} has the fields {fields}.\nWrite {count} {format}. {only}",
    "I need {count} {format} ({table}).\nFields:\n{lines}\n{only}",
    "Make up {count} {format} for {table}.\nSchema: {fields}\n{only}",
)
_ONLY: Final = ("Write nothing else.", "Output only the records.", "No other text.", "")
_FORMATS: Final[dict[str, tuple[Writer, tuple[str, ...]]]] = {
    "jsonl": (as_jsonl, ("JSONL records", "JSON lines", "records in JSONL")),
    "csv": (
        as_csv,
        ("CSV records with a header", "CSV rows and a header", "records as CSV with header"),
    ),
    "sql": (
        as_sql,
        ("SQL INSERT statements", "INSERT statements in SQL", "records as SQL INSERT statements"),
    ),
}


def jsonl(rng: random.Random) -> Sample:
    """Records as JSONL."""
    return _records(rng, "jsonl")


def csv_records(rng: random.Random) -> Sample:
    """Records as CSV with a header."""
    return _records(rng, "csv")


def sql(rng: random.Random) -> Sample:
    """Records as SQL INSERT statements."""
    return _records(rng, "sql")


def _records(rng: random.Random, kind: str) -> Sample:
    table, fields, count = rng.choice(_TABLES), schema(rng), rng.randint(2, 8)
    write, names = _FORMATS[kind]
    question = rng.choice(_QUESTIONS).format(
        count=_number(rng, count),
        format=rng.choice(names),
        table=table,
        fields=_listed(fields),
        lines="\n".join(f"- {field.name}: {field.type}" for field in fields),
        only=rng.choice(_ONLY),
    )
    rows = [[value(rng, field) for field in fields] for _ in range(count)]
    grade: dict[str, Any] = {"kind": kind, "fields": _described(fields), "count": count}
    if kind == "sql":
        grade["table"] = table
    thought = maybe(rng, 0.1, f"{count} records with {len(fields)} fields.")
    return answered(rng, kind, question.strip(), write(table, fields, rows), grade, thought)


def json_object(rng: random.Random) -> Sample:
    """One object: values are invented, or given in the question."""
    fields = schema(rng, 2, 6)
    values = {field.name: value(rng, field) for field in fields}
    if rng.random() < 0.5:
        told = rng.sample(fields, len(fields))
        facts = ", ".join(f"{field.name} is {_plain(values[field.name])}" for field in told)
        question = rng.choice(
            (
                f"Write one JSON object with the fields {_listed(fields)}. The {facts}.",
                f"The {facts}. Give this as a JSON object with the fields {_listed(fields)}.",
            )
        )
        grade: dict[str, Any] = {"kind": "json_object", "answer": values}
    else:
        question = rng.choice(
            (
                "Give one JSON object with these fields: {}.",
                "Write a JSON object with the fields {}. Nothing else.",
                "I need one JSON object. Fields: {}.",
            )
        ).format(_listed(fields))
        grade = {"kind": "json_object", "fields": _described(fields)}
    thought = maybe(rng, 0.1, f"One object with {len(fields)} fields.")
    return answered(rng, "json_object", question, json.dumps(values), grade, thought)


def _listed(fields: Sequence[Field]) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in fields)


def _described(fields: Sequence[Field]) -> list[dict[str, str]]:
    return [{"name": field.name, "type": field.type} for field in fields]


_COUNT_WORDS: Final = words("two three four five six seven eight")


def _number(rng: random.Random, count: int) -> str:
    return _COUNT_WORDS[count - 2] if rng.random() < 0.3 else str(count)
