"""A lock for each machine, so that two commands never work on the same one."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ninfer.errors import ExistsError

# Whoever only looks whether a lock is held holds it for a moment.
_LOOKS: Final = 5
_LOOK_SECONDS: Final = 0.02


@contextmanager
def machine_lock(folder: Path, key: int, name: str) -> Iterator[None]:
    """Hold the lock of the machine with that number in the records, without waiting for it.

    The kernel lets go of it when the process dies. Raises ExistsError naming the process.
    """
    handle = os.open(folder / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _taken_soon(handle):
            owner = os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "?"
            raise ExistsError(f"{name}: process {owner} works on it; wait until it is done")
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def is_locked(folder: Path, key: int) -> bool:
    """Whether a living process works on the machine."""
    try:
        handle = os.open(folder / f"{key}.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _taken(handle)
    finally:
        os.close(handle)


def _taken_soon(handle: int) -> bool:
    for _ in range(_LOOKS):
        if _taken(handle):
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
