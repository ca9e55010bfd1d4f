"""Stored responses in one SQLite file that all replicas of a machine share."""

import json
import sqlite3
import threading
import zlib
from pathlib import Path
from typing import Any, Final

from ninfer.errors import UsageError
from ninfer.log import get_logger
from ninfer.server.errors import dump
from ninfer.server.responses.store import Item, Record

_log = get_logger(__name__)
_WAIT_SECONDS: Final = 30.0
_SCHEMA: Final = """
create table if not exists responses (
    number integer primary key autoincrement, owner integer not null, name text not null unique,
    size integer not null, record blob not null);
create table if not exists items (
    owner integer not null, name text not null, response text not null, item blob not null);
create index if not exists items_by_name on items (owner, name);
create index if not exists items_by_response on items (response);
"""


class SharedResponses:
    """The latest responses of all replicas; the oldest go first. Each key sees its own."""

    def __init__(self, path: Path, most: int, most_bytes: int) -> None:
        """Bounds are those of all replicas together. Raises UsageError for an unusable file."""
        self._most: Final = most
        self._most_bytes: Final = most_bytes
        self._lock: Final = threading.Lock()
        try:
            self._base = sqlite3.connect(
                path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._base.execute("pragma journal_mode = wal")
            self._base.execute("pragma synchronous = normal")
            self._base.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise UsageError(f"--response-store {path}: {error}; name another file") from None

    def put(self, record: Record) -> None:
        """Keep a response; others go to make room. One that has no room at all is not kept."""
        name, data = record.response["id"], _packed(record)
        if len(data) > self._most_bytes:
            _log.warning(
                "a response of %d bytes is not stored; raise --response-store-max-mib", len(data)
            )
            return
        items = [
            (record.owner, item["id"], name, dump(item))
            for item in (*record.input, *record.response["output"])
            if isinstance(item.get("id"), str)
        ]
        with self._lock, self._base:
            self._base.execute("begin immediate")
            self._base.execute(
                "insert or replace into responses (owner, name, size, record) values (?, ?, ?, ?)",
                (record.owner, name, len(data), data),
            )
            self._base.executemany("insert into items values (?, ?, ?, ?)", items)
            self._make_room()

    def get(self, owner: int, name: str) -> Record | None:
        """A response of this owner, whichever replica gave it."""
        with self._lock:
            row = self._base.execute(
                "select record from responses where name = ? and owner = ?", (name, owner)
            ).fetchone()
        return None if row is None else _unpacked(owner, row[0])

    def item(self, owner: int, name: str) -> Item | None:
        """An item of any response of this owner."""
        with self._lock:
            row = self._base.execute(
                "select item from items where owner = ? and name = ? order by rowid desc limit 1",
                (owner, name),
            ).fetchone()
        found: Item | None = None if row is None else json.loads(row[0])
        return found

    def delete(self, owner: int, name: str) -> bool:
        """Forget a response; whether it was there."""
        with self._lock, self._base:
            self._base.execute("begin immediate")
            gone = self._base.execute(
                "delete from responses where name = ? and owner = ?", (name, owner)
            ).rowcount
            if gone:
                self._base.execute("delete from items where response = ?", (name,))
        return bool(gone)

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def _make_room(self) -> None:
        while True:
            count, size = self._base.execute(
                "select count(*), coalesce(sum(size), 0) from responses"
            ).fetchone()
            if count <= self._most and size <= self._most_bytes:
                return
            number, name = self._base.execute(
                "select number, name from responses order by number limit 1"
            ).fetchone()
            self._base.execute("delete from responses where number = ?", (number,))
            self._base.execute("delete from items where response = ?", (name,))


def _packed(record: Record) -> bytes:
    value: dict[str, Any] = {
        "response": record.response,
        "input": record.input,
        "history": record.history,
        "sizes": [record.history_bytes, record.own_bytes],
    }
    return zlib.compress(dump(value), 1)


def _unpacked(owner: int, data: bytes) -> Record:
    value = json.loads(zlib.decompress(data))
    history, own = value["sizes"]
    return Record(
        owner, value["response"], tuple(value["input"]), tuple(value["history"]), history, own
    )
