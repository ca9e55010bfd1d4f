"""Where entries go that leave the prefix cache: host memory, and a folder that outlives us."""

import contextlib
import fcntl
import os
import secrets
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from ninfer.errors import UsageError
from ninfer.log import get_logger
from ninfer.runtime.prefix_match import MissReason
from ninfer.runtime.prefix_record import Record, RecordForm, decode, encode, encoded_bytes

log = get_logger(__name__)

_SUFFIX: Final = ".prefix"
_PARTIAL: Final = ".partial"


class Tier(Protocol):
    """A store of records by chain hash, for any thread. Nothing in it can make a request fail."""

    def holds(self, chain: bytes) -> bool:
        """Whether a record is there; it may still prove unusable."""

    def touch(self, chain: bytes) -> bool:
        """Make a record the newest; False when it is not there."""

    def put(self, record: Record) -> bool:
        """Keep a record, dropping older ones as needed; False when that is not possible."""

    def get(self, chain: bytes, form: RecordForm) -> Record | MissReason | None:
        """The record; a reason when it is of no use; None when it is not there."""

    def drop(self, chain: bytes) -> None:
        """Forget a record, if it is there."""


class HostTier:
    """Records in host memory, least recently used first out, into `overflow` if there is one."""

    def __init__(self, capacity_bytes: int, overflow: Tier | None = None) -> None:
        self.capacity: Final = capacity_bytes
        self._overflow = overflow
        self._records: OrderedDict[bytes, Record] = OrderedDict()
        self._lock = threading.RLock()
        self.bytes = 0
        self.peak_bytes = 0

    def holds(self, chain: bytes) -> bool:
        """Whether it is here or in the overflow."""
        return chain in self._records or (
            self._overflow is not None and self._overflow.holds(chain)
        )

    def touch(self, chain: bytes) -> bool:
        """Make a record the newest of those that it lies with; False when it is nowhere."""
        with self._lock:
            if chain in self._records:
                self._records.move_to_end(chain)
                return True
        return self._overflow is not None and self._overflow.touch(chain)

    def put(self, record: Record) -> bool:
        """Keep a record; one that is larger than the capacity goes to the overflow at once."""
        if record.tensor_bytes > self.capacity:
            return self._overflow is not None and self._overflow.put(record)
        gone: list[Record] = []
        with self._lock:
            self._forget(record.chain)
            self._records[record.chain] = record
            self.bytes += record.tensor_bytes
            while self.bytes > self.capacity:
                gone.append(next(iter(self._records.values())))
                self._forget(gone[-1].chain)
            self.peak_bytes = max(self.peak_bytes, self.bytes)
        for oldest in gone:
            self._pass_on(oldest)
        return True

    def flush(self) -> None:
        """Give a copy of everything to the overflow, for the end of a process."""
        for record in list(self._records.values()):
            self._pass_on(record)

    def get(self, chain: bytes, form: RecordForm) -> Record | MissReason | None:
        """The record, from here or from the overflow."""
        with self._lock:
            record = self._records.get(chain)
            if record is not None:
                self._records.move_to_end(chain)
        if record is None:
            return None if self._overflow is None else self._overflow.get(chain, form)
        return record if record.layout == form.layout else MissReason.STORED_CHANGED

    def drop(self, chain: bytes) -> None:
        """Forget a record here and in the overflow."""
        self._forget(chain)
        if self._overflow is not None:
            self._overflow.drop(chain)

    def _pass_on(self, record: Record) -> None:
        if self._overflow is not None and not self._overflow.touch(record.chain):
            self._overflow.put(record)

    def _forget(self, chain: bytes) -> None:
        with self._lock:
            record = self._records.pop(chain, None)
            if record is not None:
                self.bytes -= record.tensor_bytes


class DiskTier:
    """Records as files of a folder, at most `capacity_bytes` of them; several processes may share.

    A file is written under a temporary name and renamed when whole, so a process that is killed
    leaves whole files and temporary ones, which the next start removes. It is not synced: after a
    power cut a file may be damaged, which the checksum finds. The time of a file is that of its
    last use. Files hold what users wrote, so only their owner may read them.
    """

    def __init__(self, folder: Path, capacity_bytes: int) -> None:
        """Raises UsageError when the folder cannot be made or read."""
        self._folder = folder
        self._capacity = capacity_bytes
        self.failures = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep()
        except OSError as error:
            raise UsageError(
                f"{folder}: cannot hold the prefix cache: {error.strerror}; name another folder"
            ) from error

    def holds(self, chain: bytes) -> bool:
        """Whether there is a file of this name."""
        return self._path(chain).exists()

    def touch(self, chain: bytes) -> bool:
        """Set the time of the file to now; False when it is not there."""
        try:
            os.utime(self._path(chain), follow_symlinks=False)
        except OSError:
            return False
        return True

    def put(self, record: Record) -> bool:
        """Write a record. A disk that refuses is counted, and logged once."""
        size = encoded_bytes(record)
        if size > self._capacity:
            return False
        try:
            self._make_room(size)
            self._write(record)
        except OSError as error:
            self._failed("written", error)
            return False
        return True

    def get(self, chain: bytes, form: RecordForm) -> Record | MissReason | None:
        """Read a record and check it whole; a file that is of no use is removed."""
        path = self._path(chain)
        try:
            data = _read(path)
            if data is None:
                return None
            record = decode(data, form)
            if isinstance(record, Record) and record.chain == chain:
                os.utime(path)
                return record
            self.drop(chain)
        except (OSError, MemoryError) as error:
            self._failed("read", error)
            return MissReason.STORED_DAMAGED
        return record if isinstance(record, MissReason) else MissReason.STORED_DAMAGED

    def drop(self, chain: bytes) -> None:
        """Remove the file; another process that reads it now still can."""
        with contextlib.suppress(OSError):
            self._path(chain).unlink(missing_ok=True)

    def _path(self, chain: bytes) -> Path:
        return self._folder / (chain.hex() + _SUFFIX)

    def _write(self, record: Record) -> None:
        partial = self._folder / f".{record.chain.hex()}.{secrets.token_hex(4)}{_PARTIAL}"
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "wb") as file:
                # Held while this process lives: a sweep leaves the file alone.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for piece in encode(record):
                    file.write(piece)
                file.flush()
                partial.replace(self._path(record.chain))
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def _make_room(self, size: int) -> None:
        files = sorted(self._files())
        used = sum(entry[1] for entry in files)
        for _, length, path in files:
            if used + size <= self._capacity:
                break
            path.unlink(missing_ok=True)
            used -= length

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """Time of last use, length and path of each file, other processes' included."""
        for path in self._folder.glob("*" + _SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                yield status.st_mtime_ns, status.st_size, path

    def _sweep(self) -> None:
        """Remove temporary files whose writer is gone."""
        for path in self._folder.glob(".*" + _PARTIAL):
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)

    def _failed(self, what: str, error: OSError | MemoryError) -> None:
        self.failures += 1
        if self.failures == 1:
            reason = error.strerror if isinstance(error, OSError) else "out of memory"
            log.warning("%s: a prefix cache entry could not be %s: %s", self._folder, what, reason)


def _read(path: Path) -> bytearray | None:
    """The bytes of a regular file, writable as torch wants them; None when there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return bytearray()
        data = bytearray(status.st_size)
        return data if file.readinto(data) == len(data) else bytearray()
