"""Byte framing of container v2: the file header, and opening a file as far as its directory."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from ninfer.artifact.directory import Directory, check_geometry, parse_directory
from ninfer.artifact.layouts import align_up
from ninfer.errors import ArtifactError, FramingError

STEM: Final = b"NINFER\x00"
REVISION: Final = 2
MAGIC: Final = STEM + bytes([REVISION])
HEADER_BYTES: Final = 16
PAYLOAD_ALIGNMENT: Final = 4096
# Published directories hold 0.2 MB; the largest known model would need 7 MB.
MAX_JSON_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ArtifactHeader:
    """What a file says about itself before any payload byte is read."""

    path: Path
    directory: Directory
    payload_offset: int
    file_size: int


def payload_start(json_bytes: int) -> int:
    """File offset of the payload behind a directory of that length."""
    return align_up(HEADER_BYTES + json_bytes, PAYLOAD_ALIGNMENT)


def encode_header(directory_text: bytes) -> bytes:
    """Magic, length, directory and zero padding: everything before the payload."""
    head = MAGIC + len(directory_text).to_bytes(8, "little") + directory_text
    return head.ljust(payload_start(len(directory_text)), b"\x00")


def read_header(path: str | os.PathLike[str]) -> ArtifactHeader:
    """Read and check the header and directory of a file; payload bytes are not touched.

    Raises ArtifactError when the file cannot be opened or read, FramingError when it is not a
    container of this revision, DirectoryError when an object breaks a rule. Messages begin with the
    path.
    """
    where = Path(path)
    with open_regular(where) as file:
        return read_open_header(file, where)


def read_open_header(file: BinaryIO, path: Path) -> ArtifactHeader:
    """As read_header, from the start of an open file."""
    try:
        file_size = os.fstat(file.fileno()).st_size
        json_bytes = _check_start(file.read(HEADER_BYTES), file_size)
        directory = parse_directory(file.read(json_bytes))
        payload_offset = payload_start(json_bytes)
        check_geometry(directory.entries, file_size - payload_offset)
    except ArtifactError as error:
        raise type(error)(f"{path}: {error}") from None
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    return ArtifactHeader(path, directory, payload_offset, file_size)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading. Raises ArtifactError unless it is a regular, readable file."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ArtifactError(f"{path}: is a directory; name the .ninfer file itself")
        if not stat.S_ISREG(mode):
            raise ArtifactError(f"{path}: is not a regular file")
        return path.open("rb")
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        # ValueError: a path with a null character.
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ArtifactError(f"{path}: cannot be opened: {reason}") from error


def _check_start(head: bytes, file_size: int) -> int:
    """Length of the directory after checks of magic and sizes."""
    if not head:
        raise FramingError("the file is empty")
    _check_magic(head)
    if len(head) < HEADER_BYTES:
        raise FramingError(f"cut short inside the {HEADER_BYTES}-byte header, at {len(head)} bytes")
    json_bytes = int.from_bytes(head[8:16], "little")
    if json_bytes == 0:
        raise FramingError("the header gives a directory of 0 bytes")
    if json_bytes > MAX_JSON_BYTES:
        raise FramingError(
            f"the header gives a directory of {json_bytes} bytes; the limit is {MAX_JSON_BYTES}"
        )
    needed = payload_start(json_bytes)
    if file_size < needed:
        raise FramingError(
            f"cut short: {file_size} bytes, but header and directory take {needed}; fetch it again"
        )
    return json_bytes


def _check_magic(head: bytes) -> None:
    stem, revision = head[:7], head[7:8]
    if stem != STEM[: len(stem)]:
        raise FramingError(f"is not a .ninfer artifact: it begins with {head[:8].hex()}")
    if not revision:
        raise FramingError(f"cut short inside the {HEADER_BYTES}-byte header, at {len(head)} bytes")
    found = revision[0]
    if found == REVISION:
        return
    what = f"framing v{found}; this version reads v{REVISION}"
    if found == 1:
        raise FramingError(f"{what}: fetch the v{REVISION} form of this artifact")
    if found == 3:
        raise FramingError(
            f"{what}: fetch the v{REVISION} form of this artifact, or a newer ninfer"
        )
    if found == 0:
        raise FramingError(f"framing v0 does not exist; this version reads v{REVISION}")
    raise FramingError(f"framing v{found} is newer than this version reads (v{REVISION})")
