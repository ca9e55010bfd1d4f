"""Writing behind: a thread puts records into a slow tier, so that nobody waits for a disk."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from ninfer.log import get_logger
from ninfer.runtime.prefix_match import MissReason
from ninfer.runtime.prefix_record import Record, RecordForm
from ninfer.runtime.prefix_store import Tier

log = get_logger(__name__)


class WriteBehind:
    """A tier in front of a slow one. Records that wait to be written are found as if they were.

    They may take `queue_bytes`; what comes when those are full is refused and counted, unless
    nothing waits. May be called from any thread.
    """

    def __init__(self, tier: Tier, queue_bytes: int) -> None:
        self._tier: Final = tier
        self._limit = queue_bytes
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ninfer-prefix-writer")
        self._waiting: dict[bytes, Record] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self._at_once = False
        self.refused = 0

    @property
    def is_busy(self) -> bool:
        """Whether records wait to be written."""
        return bool(self._waiting)

    def holds(self, chain: bytes) -> bool:
        """Whether it waits here or lies in the tier."""
        return chain in self._waiting or self._tier.holds(chain)

    def touch(self, chain: bytes) -> bool:
        """Make a record the newest; one that waits will be."""
        return chain in self._waiting or self._tier.touch(chain)

    def put(self, record: Record) -> bool:
        """Queue a record; False when the queue is full. After `settle` it is written at once."""
        if self._at_once:
            return self._tier.put(record)
        with self._lock:
            if record.chain in self._waiting:
                return True
            if self._waiting and self._bytes + record.tensor_bytes > self._limit:
                self.refused += 1
                return False
            self._waiting[record.chain] = record
            self._bytes += record.tensor_bytes
        self._writer.submit(self._write, record).add_done_callback(_report)
        return True

    def get(self, chain: bytes, form: RecordForm) -> Record | MissReason | None:
        """The record, from the queue or from the tier."""
        record = self._waiting.get(chain)
        if record is None:
            return self._tier.get(chain, form)
        return record if record.layout == form.layout else MissReason.STORED_CHANGED

    def drop(self, chain: bytes) -> None:
        """Forget a record; one that is just being written may stay."""
        self._forget(chain)
        self._tier.drop(chain)

    def settle(self) -> None:
        """Wait until everything is written; later records are written before `put` returns."""
        self._at_once = True
        self._writer.shutdown()

    def _write(self, record: Record) -> None:
        try:
            if record.chain in self._waiting:
                self._tier.put(record)
        finally:
            self._forget(record.chain)

    def _forget(self, chain: bytes) -> None:
        with self._lock:
            record = self._waiting.pop(chain, None)
            if record is not None:
                self._bytes -= record.tensor_bytes


def _report(write: Future[None]) -> None:
    error = write.exception()
    if error is not None:
        log.error("a prefix cache entry could not be written: %r", error)
