"""SQL scripts: run in an empty SQLite database in memory, then looked at and queried."""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from ninfer.audit.contracts.fences import only_block
from ninfer.audit.contracts.parameters import Parameters
from ninfer.audit.contracts.prose import Check, shown
from ninfer.audit.contracts.records import ContractCheck, shortened
from ninfer.errors import UsageError

_SECONDS: Final = 5.0
_STEPS: Final = 20_000
_LONGEST: Final = 16 << 20
_PAGES: Final = 16_384  # of 4 KiB
# What a script has no business with: other files.
_DENIED: Final = frozenset({sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH})


def sql_script(parameters: Parameters) -> Check:
    """The script runs; `tables` have their `columns` and `rows`, `views` exist and can be read.

    `tables` maps a name to an object with `columns` (names that it has), `rows` (exactly) or
    `least` rows. `queries` are objects with `sql` and either `rows`, a list of lists, or `count`.
    """
    tables = parameters.value("tables", dict, {})
    views = parameters.texts("views", ())
    queries = parameters.value("queries", list, [])
    for name, wanted in tables.items():
        if not isinstance(wanted, dict) or not set(wanted) <= {"columns", "rows", "least"}:
            raise UsageError(f"{parameters.where}.tables.{name}: takes columns, rows and least")
    for number, query in enumerate(queries):
        if not isinstance(query, dict) or not isinstance(query.get("sql"), str):
            raise UsageError(f"{parameters.where}.queries[{number}]: needs sql")

    def check(text: str) -> ContractCheck:
        script = only_block(text, ("sql", "sqlite", "sqlite3")).strip()
        if not script:
            return ContractCheck(("the answer is empty",))
        with closing(_database()) as base:
            try:
                base.executescript(script)
            except (sqlite3.Error, sqlite3.Warning, MemoryError) as error:
                return ContractCheck((f"SQLite: {error}",), notes=("run in SQLite",))
            reasons = [
                *(r for name, wanted in tables.items() for r in _table(base, name, wanted)),
                *(r for name in views for r in _view(base, name)),
                *(r for query in queries for r in _query(base, query)),
            ]
        return ContractCheck(shortened(reasons), notes=("run in SQLite",))

    return check


def _database() -> sqlite3.Connection:
    base = sqlite3.connect(":memory:", isolation_level=None)
    base.execute(f"PRAGMA max_page_count = {_PAGES}")
    base.execute("PRAGMA foreign_keys = ON")
    base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    base.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    end = time.thread_time() + _SECONDS
    base.set_progress_handler(lambda: int(time.thread_time() > end), _STEPS)

    def allowed(action: int, first: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_PRAGMA:  # common in scripts, and must not undo the limits
            return sqlite3.SQLITE_IGNORE
        load = action == sqlite3.SQLITE_FUNCTION and "load_extension" in (first, *_)
        return sqlite3.SQLITE_DENY if action in _DENIED or load else sqlite3.SQLITE_OK

    base.set_authorizer(allowed)
    return base


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(base: sqlite3.Connection, name: str, wanted: Mapping[str, Any]) -> Iterator[str]:
    try:
        cursor = base.execute(f"SELECT * FROM {_quoted(name)} LIMIT 0")
        columns = [item[0] for item in cursor.description]
        (rows,) = base.execute(f"SELECT count(*) FROM {_quoted(name)}").fetchone()
    except sqlite3.Error as error:
        yield f"table {name}: {error}"
        return
    for column in wanted.get("columns", ()):
        if column not in columns:
            yield f"table {name} has no column {column!r}"
    if "rows" in wanted and rows != wanted["rows"]:
        yield f"table {name} has {rows} rows in place of {wanted['rows']}"
    if rows < wanted.get("least", 0):
        yield f"table {name} has {rows} rows, not {wanted['least']}"


def _view(base: sqlite3.Connection, name: str) -> Iterator[str]:
    known = base.execute("SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = ?", (name,))
    if known.fetchone() is None:
        yield f"no view {name}"
        return
    try:
        base.execute(f"SELECT * FROM {_quoted(name)} LIMIT 1").fetchall()
    except sqlite3.Error as error:
        yield f"view {name}: {error}"


def _query(base: sqlite3.Connection, query: Mapping[str, Any]) -> Iterator[str]:
    try:
        rows: Sequence[Any] = base.execute(query["sql"]).fetchall()
    except sqlite3.Error as error:
        yield f"{shown(query['sql'])}: {error}"
        return
    if "rows" in query and [list(row) for row in rows] != query["rows"]:
        yield f"{shown(query['sql'])} gives {shown(str([list(row) for row in rows]))}"
    if "count" in query and len(rows) != query["count"]:
        yield f"{shown(query['sql'])} gives {len(rows)} rows in place of {query['count']}"
