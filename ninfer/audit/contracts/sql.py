"""SQL: INSERT statements into one table, values as literals, quotes doubled, nothing else."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ninfer.audit.contracts.records import ContractCheck, RecordContract, body_of, check_rows

T = TypeVar("T")

_TOKEN: Final = re.compile(
    r"\s*(?:"
    r"(?P<string>'[^']*(?:''[^']*)*')"
    r"|(?P<number>-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?(?![\w.]))"
    r'|(?P<name>[A-Za-z_]\w*|"[^"]+")'
    r"|(?P<mark>[(),;]))"
)
_CONSTANTS: Final[dict[str, bool | None]] = {"null": None, "true": True, "false": False}
_SHOWN: Final = 20


class _BrokenError(Exception):
    """What follows cannot be read as an INSERT statement."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def check_sql(text: str, contract: RecordContract) -> ContractCheck:
    """Check an answer: `INSERT INTO table (columns) VALUES (...), (...);`, once or several times.

    The columns are named, in any order. Each statement ends with a semicolon.
    """
    body, reasons = body_of(text)
    if reasons:
        return ContractCheck(tuple(reasons))
    reader = _Reader(body)
    rows: list[tuple[str, Mapping[str, Any]]] = []
    try:
        reader.read_tokens()
        while not reader.at_end:
            table, found = reader.statement()
            if contract.table is not None and table != contract.table:
                reasons.append(f"the table is {table!r}, not {contract.table!r}")
            rows += ((f"record {len(rows) + n}", row) for n, row in enumerate(found, 1))
    except _BrokenError as error:
        reasons.append(str(error))
    return check_rows(contract, rows, reasons)


class _Reader:
    """Statements of a text, one after another."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Whether all tokens are read."""
        return self._at == len(self._tokens)

    def read_tokens(self) -> None:
        """Split the text."""
        place = 0
        while place < len(self._text):
            match = _TOKEN.match(self._text, place)
            if match is None:
                rest = self._text[place:].strip()
                raise _BrokenError(f"cannot be read from {rest[:_SHOWN]!r} on")
            kind = match.lastgroup or ""
            self._tokens.append(_Token(kind, match[kind]))
            place = match.end()

    def statement(self) -> tuple[str, list[Mapping[str, Any]]]:
        """Table and records of one INSERT."""
        self._word("insert")
        self._word("into")
        table = self._name()
        columns = self._listed(self._name)
        self._word("values")
        rows: list[Mapping[str, Any]] = []
        while True:
            values = self._listed(self._literal)
            if len(values) != len(columns):
                raise _BrokenError(f"{len(values)} values for {len(columns)} columns")
            rows.append(dict(zip(columns, values, strict=True)))
            if len(rows[-1]) != len(columns):
                raise _BrokenError("a column is named twice")
            if self._mark(",;") == ";":
                return table, rows

    def _next(self) -> _Token:
        if self.at_end:
            raise _BrokenError("the last statement has no end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _word(self, expected: str) -> None:
        token = self._next()
        if token.kind != "name" or token.text.lower() != expected:
            raise _BrokenError(f"{token.text[:_SHOWN]!r} stands where {expected.upper()} belongs")

    def _name(self) -> str:
        token = self._next()
        if token.kind != "name":
            raise _BrokenError(f"{token.text[:_SHOWN]!r} is no name")
        return token.text.strip('"')

    def _mark(self, allowed: str) -> str:
        token = self._next()
        if token.kind != "mark" or token.text not in allowed:
            raise _BrokenError(f"{token.text[:_SHOWN]!r} stands where one of {allowed!r} belongs")
        return token.text

    def _listed(self, read: Callable[[], T]) -> list[T]:
        """`( item, item, ... )`."""
        self._mark("(")
        items = [read()]
        while self._mark(",)") == ",":
            items.append(read())
        return items

    def _literal(self) -> Any:
        token = self._next()
        if token.kind == "string":
            return token.text[1:-1].replace("''", "'")
        if token.kind == "number":
            return float(token.text) if set(token.text) & set(".eE") else int(token.text)
        if token.kind == "name" and token.text.lower() in _CONSTANTS:
            return _CONSTANTS[token.text.lower()]
        raise _BrokenError(f"{token.text[:_SHOWN]!r} is no literal")
