"""The fleet's records on disk: whole transactions that survive a kill, one writer at a time."""

import math
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from ninfer.errors import ExistsError, FleetError, NoInstanceError, UsageError
from ninfer.fleet.clock import Clock
from ninfer.fleet.contract import Contract, Stage
from ninfer.fleet.schema import TABLES, VERSION

_COLUMNS: Final = tuple(spec.name for spec in fields(Contract))
_PATIENCE: Final = 30.0  # seconds to wait for another process's transaction


class Store:
    """Contracts, events and money, in one SQLite file that only its owner may read.

    A change is on the disk when its method returns. Raises FleetError naming the file when it
    cannot be read or written.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder: Final = folder
        self.path: Final = folder / "fleet.sqlite3"
        self.clock: Final = clock
        _own_folder(folder)
        with self._errors(), ExitStack() as undo:
            self._db = self._connect()
            undo.callback(self._db.close)
            with self._changes():
                self._migrate()
            undo.pop_all()

    def _connect(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        return db

    def _migrate(self) -> None:
        for statement in TABLES.split(";\n"):
            self._db.execute(statement)
        self._db.execute("INSERT OR IGNORE INTO facts VALUES ('version', ?)", (str(VERSION),))
        self._db.execute("INSERT OR IGNORE INTO facts VALUES ('id', ?)", (secrets.token_hex(4),))
        if self._fact("version") != str(VERSION):
            raise FleetError(
                f"{self.path}: version {self._fact('version')} of the records; this ninfer "
                f"knows {VERSION}, use the one that wrote them"
            )

    def _fact(self, name: str) -> str:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row["value"])

    @property
    def id(self) -> str:
        """Eight hex digits that stand in every label of these records."""
        with self._errors():
            return self._fact("id")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise FleetError(
                f"{self.path}: {error}; the machines' records are not usable"
            ) from error

    @contextmanager
    def _changes(self) -> Iterator[None]:
        """One transaction; nothing of it holds unless all of it does."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._commit()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _commit(self) -> None:
        self._db.execute("COMMIT")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several reads and changes as one, with no other writer between them."""
        with self._errors(), self._changes():
            yield

    def add(self, contract: dict[str, Any], text: str) -> Contract:
        """Insert a row, inside a `transaction`. Raises ExistsError when the name is taken."""
        names = ", ".join(contract)
        marks = ", ".join("?" for _ in contract)
        try:
            cursor = self._db.execute(
                f"INSERT INTO contracts ({names}) VALUES ({marks})", tuple(contract.values())
            )
        except sqlite3.IntegrityError:
            raise _taken(contract["name"]) from None
        key = int(cursor.lastrowid or 0)
        self._note(key, text)
        return self.contract(key)

    def refuse_taken(self, name: str) -> None:
        """Raises ExistsError when an open row has the name; `add` checks it once more."""
        if any(row.name == name for row in self.contracts()):
            raise _taken(name)

    def change(self, contract: Contract, text: str, **values: Any) -> Contract:
        """Change columns of a row and note why, in one transaction."""
        with self._errors(), self._changes():
            sets = ", ".join(f"{name} = ?" for name in values)
            if values:
                self._db.execute(
                    f"UPDATE contracts SET {sets} WHERE key = ?", (*values.values(), contract.key)
                )
            self._note(contract.key, text)
            return self.contract(contract.key)

    def count(self, contract: Contract, until: float, dollars: float, rate: float) -> Contract:
        """Add what was spent since the last count, and the rate from now on."""
        with self._errors(), self._changes():
            fresh = self.contract(contract.key)
            if dollars > 0:
                self._db.execute(
                    "INSERT INTO spend VALUES (?, ?, ?, ?)",
                    (contract.key, fresh.counted_until, until, dollars),
                )
            self._db.execute(
                "UPDATE contracts SET spent = spent + ?, counted_until = ?, rate = ? WHERE key = ?",
                (dollars, max(until, fresh.counted_until), rate, contract.key),
            )
            return self.contract(contract.key)

    def _note(self, key: int, text: str) -> None:
        if text:
            self._db.execute("INSERT INTO events VALUES (?, ?, ?)", (key, self.clock.now(), text))

    def contract(self, key: int) -> Contract:
        """The row as it stands now."""
        with self._errors():
            row = self._db.execute("SELECT * FROM contracts WHERE key = ?", (key,)).fetchone()
        return _contract(row)

    def contracts(self, *, closed: bool = False) -> list[Contract]:
        """All rows that may bill, oldest first; with `closed` the others too."""
        with self._errors():
            where = "" if closed else f"WHERE stage != '{Stage.CLOSED}'"
            rows = self._db.execute(f"SELECT * FROM contracts {where} ORDER BY key").fetchall()
        return [_contract(row) for row in rows]

    def named(self, name: str) -> Contract:
        """The open row of that name or machine number; the only one if the name is empty.

        Raises NoInstanceError, and UsageError when an empty name leaves a choice.
        """
        rows = self.contracts()
        if name:
            rows = [row for row in rows if name in (row.name, row.machine_id)]
        if not rows:
            known = ", ".join(row.name for row in self.contracts()) or "none"
            raise NoInstanceError(f"no machine {name or 'at all'}; in the records: {known}")
        if len(rows) > 1:
            names = ", ".join(row.name for row in rows)
            raise UsageError(f"several machines: {names}; name one, or set NINFER_INSTANCE")
        return rows[0]

    def events(self, contract: Contract) -> list[tuple[float, str]]:
        """What happened to a machine: time and text, oldest first."""
        with self._errors():
            rows = self._db.execute(
                "SELECT at, text FROM events WHERE contract = ? ORDER BY rowid", (contract.key,)
            ).fetchall()
        return [(row["at"], row["text"]) for row in rows]

    def spent_since(self, moment: float) -> float:
        """Dollars counted after a moment, by all machines; a period across it counts by share."""
        with self._errors():
            rows = self._db.execute("SELECT * FROM spend WHERE until > ?", (moment,)).fetchall()
        return math.fsum(row["dollars"] * _share_after(moment, row) for row in rows)

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Rows of a table that this class does not know."""
        with self._errors():
            return self._db.execute(statement, values).fetchall()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """One change to such a table; returns the number of rows it touched."""
        with self._errors(), self._changes():
            return self._db.execute(statement, values).rowcount


def _contract(row: sqlite3.Row) -> Contract:
    values = {name: row[name] for name in _COLUMNS}
    return Contract(**{**values, "stage": Stage(values["stage"])})


def _taken(name: str) -> ExistsError:
    return ExistsError(
        f"{name}: a machine of this name is there already; 'ninfer status' shows it, "
        f"'ninfer destroy {name}' ends it, --name gives another name"
    )


def _share_after(moment: float, period: sqlite3.Row) -> float:
    length = period["until"] - period["since"]
    return 1.0 if length <= 0 else min(1.0, (period["until"] - moment) / length)


def _own_folder(folder: Path) -> None:
    """Make the folder for its owner alone. Raises UsageError if others may write there."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError as error:
        raise FleetError(f"{folder}: {error.strerror}; the machines' records lie there") from None
    if mode & 0o022:
        raise UsageError(f"{folder}: others may write there; run chmod 700 {folder}")
