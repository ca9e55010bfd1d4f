"""Reading and replacing a user's configuration file: a backup first, and never half a file."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ninfer.errors import ClientConfigError

_BOM: Final = b"\xef\xbb\xbf"


def amend_file(
    path: Path, change: Callable[[str], str], *, keep: bool = True
) -> tuple[bool, Path | None]:
    """Replace the file by what `change` makes of its text; a missing file counts as empty.

    Without `keep` there is no backup, for files whose secrets should not lie about twice.

    Returns whether something changed, and the backup if there was a file to back up. A link keeps
    pointing where it does, and permissions stay. Raises ClientConfigError naming the file.
    """
    try:
        real = path.resolve(strict=False)
    except (OSError, RuntimeError) as error:
        raise ClientConfigError(f"{path}: the links cannot be followed: {error}") from None
    data = _read(real, path)
    start = _BOM if data is not None and data.startswith(_BOM) else b""
    text = _decode(data[len(start) :], path) if data is not None else ""
    changed = start + change(text).encode()
    if changed == data:
        return False, None
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        backup = _back_up(real) if keep and data is not None else None
        _replace(real, changed)
    except OSError as error:
        raise ClientConfigError(
            f"{error.filename or path}: cannot be written: {error.strerror}"
        ) from None
    return True, backup


def _read(real: Path, path: Path) -> bytes | None:
    try:
        return real.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClientConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _decode(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ClientConfigError(
            f"{path}: not UTF-8 text at byte {error.start}; save it as UTF-8 first"
        ) from None


def _back_up(real: Path) -> Path:
    """A copy beside the file under a name that no earlier copy has."""
    stem = f"{real.name}.{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1000):
        backup = real.with_name(f"{stem}{f'-{number}' if number else ''}.bak")
        with contextlib.suppress(FileExistsError):
            # Made readable for the owner only: it may hold keys.
            os.close(os.open(backup, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            shutil.copy2(real, backup)
            return backup
    raise ClientConfigError(f"{stem}.bak: a thousand backups of this second exist; remove some")


def _replace(real: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if real.exists():
            shutil.copymode(real, name)
        os.replace(name, real)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
