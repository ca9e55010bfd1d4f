"""Responses that clients may refer to later: a bounded memory, lost when the server ends."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ninfer.log import get_logger
from ninfer.server.errors import dump

Item = dict[str, Any]
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Record:
    """A response, what was new in its input, and all items before that."""

    owner: int
    response: dict[str, Any]
    input: tuple[Item, ...]
    history: tuple[Item, ...] = ()
    history_bytes: int = 0
    own_bytes: int = 0

    @property
    def items(self) -> tuple[Item, ...]:
        """All items up to the end of the response."""
        return (*self.history, *self.input, *self.response["output"])

    @property
    def size(self) -> int:
        """At most what it keeps alive, in bytes."""
        return self.history_bytes + self.own_bytes


def new_record(
    owner: int, response: dict[str, Any], given: Sequence[Item], previous: Record | None
) -> Record:
    """A record that goes on where `previous` ended."""
    return Record(
        owner,
        response,
        tuple(given),
        previous.items if previous else (),
        previous.size if previous else 0,
        len(dump(response)) + len(dump(list(given))),
    )


class StoredResponses(Protocol):
    """Where responses are kept. Each key, `owner`, sees its own."""

    def put(self, record: Record) -> None:
        """Keep a response."""

    def get(self, owner: int, name: str) -> Record | None:
        """A response of this owner."""

    def item(self, owner: int, name: str) -> Item | None:
        """An item of any response of this owner."""

    def delete(self, owner: int, name: str) -> bool:
        """Forget a response; whether it was there."""


class ResponseStore:
    """The latest responses; least recently used ones go first. Each key sees its own."""

    def __init__(self, most: int, most_bytes: int) -> None:
        """`most` is the number of responses, `most_bytes` what they may take together."""
        self._most: Final = most
        self._most_bytes: Final = most_bytes
        self._records: OrderedDict[str, Record] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def put(self, record: Record) -> None:
        """Keep a response; others go to make room. One that has no room at all is not kept."""
        name = record.response["id"]
        if record.size > self._most_bytes:
            _log.warning(
                "a response of %d bytes is not stored; raise --response-store-max-mib", record.size
            )
            return
        self._records[name] = record
        self.bytes += record.size
        while len(self._records) > self._most or self.bytes > self._most_bytes:
            self._drop(next(iter(self._records)))

    def get(self, owner: int, name: str) -> Record | None:
        """A response of this owner."""
        record = self._records.get(name)
        if record is None or record.owner != owner:
            return None
        self._records.move_to_end(name)
        return record

    def item(self, owner: int, name: str) -> Item | None:
        """An item of any response of this owner."""
        found: Item | None = None
        for record in self._records.values():
            if record.owner == owner:
                for item in (*record.input, *record.response["output"]):
                    found = item if item.get("id") == name else found
        return found

    def delete(self, owner: int, name: str) -> bool:
        """Forget a response; whether it was there."""
        if self.get(owner, name) is None:
            return False
        self._drop(name)
        return True

    def _drop(self, name: str) -> None:
        self.bytes -= self._records.pop(name).size
