"""A lock between processes that is a file while it is held."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ninfer.log import get_logger

log = get_logger(__name__)


@contextmanager
def file_lock(path: Path, purpose: str) -> Iterator[None]:
    """Hold an exclusive lock named by `path`; waits for another process that holds it.

    The kernel releases the lock of a process that dies. The file is removed at the end. Raises
    OSError when it cannot be made.
    """
    handle = _acquire(path, purpose)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _acquire(path: Path, purpose: str) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _wait(handle, purpose)
            if _is_same_file(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        # The former holder removed the file that this lock is on; what counts is the new one.
        os.close(handle)


def _wait(handle: int, purpose: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info("%s: another process is at it; waiting", purpose)
        fcntl.flock(handle, fcntl.LOCK_EX)


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
