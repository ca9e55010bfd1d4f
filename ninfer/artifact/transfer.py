"""Bytes of one remote file over HTTP into a partial file that later attempts go on with."""

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import httpx

from ninfer.errors import FetchError
from ninfer.log import get_logger

log = get_logger(__name__)

# Called with the file's name, bytes done and bytes in all.
Progress = Callable[[str, int, int], None]

# Attempts in a row that bring no byte before the transfer is given up.
FRUITLESS_ATTEMPTS: Final = 5
_TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)
_RETRIED_STATUS: Final = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """Where the bytes are and how many there must be."""

    url: str
    name: str
    bytes: int
    headers: Mapping[str, str] = field(default_factory=dict)


class _Interrupted(Exception):
    """The connection ended before the file did; the text says how."""


def download(remote: RemoteFile, partial: Path, progress: Progress, *, pause: float = 1.0) -> None:
    """Make `partial` hold all bytes of a remote file, going on where it ends.

    A connection that breaks is opened again where it broke, at first after `pause` seconds and
    then after twice as long each time. A server that ignores the wanted range sends the file from
    its beginning. Raises FetchError when attempts bring nothing any more, when the server refuses
    or sends too much, or when the disk does; what has arrived stays in `partial` except after too
    many bytes.
    """
    fruitless = 0
    with _disk_errors(partial, remote), httpx.Client(timeout=_TIMEOUT) as client:
        while (have := _length(partial)) < remote.bytes:
            try:
                _request(client, remote, partial, have, progress)
                continue
            except _Interrupted as reason:
                fruitless = 0 if _length(partial) > have else fruitless + 1
                if fruitless >= FRUITLESS_ATTEMPTS:
                    raise FetchError(
                        f"{remote.name}: no byte in {fruitless} attempts ({reason}); "
                        f"{_length(partial):,} of {remote.bytes:,} bytes are kept, run it again to "
                        "go on"
                    ) from reason
                log.warning("%s: %s at %d bytes; going on", remote.name, reason, _length(partial))
            time.sleep(pause * 2**fruitless)
    _refuse_excess(_length(partial), remote, partial)


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _request(
    client: httpx.Client, remote: RemoteFile, partial: Path, have: int, progress: Progress
) -> None:
    headers = {**remote.headers, "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with client.stream("GET", remote.url, headers=headers, follow_redirects=True) as response:
            start = _start_of(response, remote, have)
            with partial.open("r+b" if have else "wb") as file:
                file.seek(start)
                file.truncate()
                _copy(response, file, remote, partial, progress)
    except httpx.TransportError as error:
        raise _Interrupted(f"connection lost: {error or type(error).__name__}") from error
    if _length(partial) < remote.bytes:
        raise _Interrupted("the server ended the file early")


def _copy(
    response: httpx.Response, file: BinaryIO, remote: RemoteFile, partial: Path, progress: Progress
) -> None:
    # Chunks of a wanted size would be lost in part when the connection breaks.
    for chunk in response.iter_raw():
        file.write(chunk)
        _refuse_excess(file.tell(), remote, partial)
        progress(remote.name, file.tell(), remote.bytes)


def _start_of(response: httpx.Response, remote: RemoteFile, have: int) -> int:
    """File offset of the first byte of an answer."""
    status = response.status_code
    if status in _RETRIED_STATUS:
        raise _Interrupted(f"the server answers {status}")
    if status == 200:
        if have:
            log.warning("%s: the server starts over in place of going on", remote.name)
        return 0
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    if status == 206 and unit == "bytes" and rest == f"{have}-{remote.bytes - 1}/{remote.bytes}":
        return have
    shown = f"{status} {response.headers.get('Content-Range', '')}".strip()
    raise FetchError(f"{remote.name}: the server answers {shown!r} to a request from byte {have}")


def _refuse_excess(length: int, remote: RemoteFile, partial: Path) -> None:
    if length > remote.bytes:
        partial.unlink()
        raise FetchError(
            f"{remote.name}: the server sent more than the {remote.bytes:,} bytes that the file "
            "has; nothing was kept"
        )


@contextmanager
def _disk_errors(partial: Path, remote: RemoteFile) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise FetchError(
                f"{partial.parent}: the disk is full; {_length(partial):,} of {remote.bytes:,} "
                f"bytes of {remote.name} are kept, make room and run it again"
            ) from error
        raise FetchError(f"{partial}: cannot be written: {error.strerror}") from error
