"""Byte framing of all revisions: the file header, and opening a file as far as its directory."""

import contextlib
import gc
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final

from ninfer.artifact.directory import (
    Directory,
    check_geometry,
    parse_directory,
    parse_directory_v1,
)
from ninfer.artifact.directory_v3 import parse_directory_v3
from ninfer.artifact.layouts import align_up
from ninfer.artifact.model_map import FileSpan
from ninfer.errors import ArtifactError, DirectoryError, FramingError

STEM: Final = b"NINFER\x00"
PART_MAGIC: Final = b"NINPRT\x00\x03"
HEADER_BYTES: Final = 16
# A v3 header also holds the artifact id, which ties part files to their entry file.
ID_BYTES: Final = 16
PAYLOAD_ALIGNMENT: Final = 4096
# Published directories hold 0.2 MB, the largest known 7 MB.
MAX_JSON_BYTES: Final = 64 << 20

_PARSERS: Final[Mapping[int, Callable[[bytes], Directory]]] = MappingProxyType(
    {1: parse_directory_v1, 2: parse_directory, 3: parse_directory_v3}
)
# Newest revision that this version reads.
NEWEST: Final = max(_PARSERS)


@dataclass(frozen=True, slots=True)
class ArtifactHeader:
    """What a file says about itself before any payload byte is read.

    `file_size` counts the opened file; part files of v3 are named in `directory.files`.
    `artifact_id` is empty before v3.
    """

    path: Path
    directory: Directory
    payload_offset: int
    file_size: int
    framing: int
    artifact_id: bytes = b""

    @property
    def files(self) -> tuple[FileSpan, ...]:
        """The files that hold the payload, this one first; before v3 there is only this one."""
        return self.directory.files or (FileSpan(None, self.file_size - self.payload_offset),)


def header_bytes(framing: int) -> int:
    """Length of the binary header in front of the directory."""
    return HEADER_BYTES + (ID_BYTES if framing == 3 else 0)


def payload_start(json_bytes: int, framing: int = 2) -> int:
    """File offset of the payload behind a directory of that length."""
    return align_up(header_bytes(framing) + json_bytes, PAYLOAD_ALIGNMENT)


def encode_header(directory_text: bytes, framing: int = 2, artifact_id: bytes = b"") -> bytes:
    """Magic, length, id of v3, directory and zero padding: everything before the payload."""
    assert len(artifact_id) == header_bytes(framing) - HEADER_BYTES, artifact_id
    magic = STEM + bytes([framing])
    head = magic + len(directory_text).to_bytes(8, "little") + artifact_id + directory_text
    return head.ljust(payload_start(len(directory_text), framing), b"\x00")


def encode_part_header(index: int, artifact_id: bytes) -> bytes:
    """Everything before the payload of part file `index` of an artifact."""
    return (PART_MAGIC + index.to_bytes(8, "little") + artifact_id).ljust(PAYLOAD_ALIGNMENT, b"\0")


def read_header(path: str | os.PathLike[str]) -> ArtifactHeader:
    """Read and check the header and directory of a file; payload bytes are not touched.

    Part files are not opened. Raises ArtifactError when the file cannot be opened or read,
    FramingError when it is not a container of a known revision, DirectoryError when an object
    breaks a rule. Messages begin with the path.
    """
    where = Path(path)
    with open_regular(where) as file:
        return read_open_header(file, where)


def read_open_header(file: BinaryIO, path: Path) -> ArtifactHeader:
    """As read_header, from the start of an open file."""
    try:
        return _read(file, path)
    except ArtifactError as error:
        raise type(error)(f"{path}: {error}") from None
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error


def check_part_header(
    head: bytes, size: int, index: int, span: FileSpan, artifact_id: bytes
) -> None:
    """Compare the start and size of a part file with what its entry file says.

    Raises FramingError for another magic, index, artifact id or length.
    """
    if head[:8] != PART_MAGIC:
        raise FramingError(f"is not a part of a v3 artifact: it begins with {head[:8].hex()}")
    found = int.from_bytes(head[8:16], "little")
    if found != index:
        raise FramingError(f"says it is part {found}; the entry file has it as part {index}")
    if head[16:32] != artifact_id:
        raise FramingError(
            f"belongs to artifact {head[16:32].hex()}, the entry file is {artifact_id.hex()};"
            " fetch both again"
        )
    wanted = PAYLOAD_ALIGNMENT + span.payload_bytes
    if size != wanted:
        raise FramingError(f"has {size} bytes, its entry file says {wanted}; fetch it again")


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


def _read(file: BinaryIO, path: Path) -> ArtifactHeader:
    file_size = os.fstat(file.fileno()).st_size
    head = file.read(HEADER_BYTES)
    framing = _framing_of(head)
    artifact_id = file.read(header_bytes(framing) - HEADER_BYTES)
    json_bytes = _check_start(head + artifact_id, framing, file_size)
    with _without_collection():
        directory = _PARSERS[framing](file.read(json_bytes))
    payload_offset = payload_start(json_bytes, framing)
    payload_bytes = file_size - payload_offset
    if directory.files:
        payload_bytes = _check_files(directory.files, path.name, payload_bytes)
    check_geometry(directory.entries, payload_bytes)
    return ArtifactHeader(path, directory, payload_offset, file_size, framing, artifact_id)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Parsing makes many objects that all stay; looking for garbage among them doubles its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_files(files: tuple[FileSpan, ...], entry_name: str, here: int) -> int:
    """Payload bytes of all files, after the exact length of the entry file was checked."""
    if here != files[0].payload_bytes:
        raise FramingError(
            f"holds {here} payload bytes, its directory says {files[0].payload_bytes};"
            " fetch it again"
        )
    for span in files[1:]:
        if span.path == entry_name:
            raise DirectoryError(f"files names the entry file {entry_name!r} as a part")
    return sum(span.payload_bytes for span in files)


def _check_start(head: bytes, framing: int, file_size: int) -> int:
    """Length of the directory after checks of the sizes."""
    needed = header_bytes(framing)
    if len(head) < needed:
        raise FramingError(f"cut short inside the {needed}-byte header, at {len(head)} bytes")
    json_bytes = int.from_bytes(head[8:16], "little")
    if json_bytes == 0:
        raise FramingError("the header gives a directory of 0 bytes")
    if json_bytes > MAX_JSON_BYTES:
        raise FramingError(
            f"the header gives a directory of {json_bytes} bytes; the limit is {MAX_JSON_BYTES}"
        )
    needed = payload_start(json_bytes, framing)
    if file_size < needed:
        raise FramingError(
            f"cut short: {file_size} bytes, but header and directory take {needed}; fetch it again"
        )
    return json_bytes


def _framing_of(head: bytes) -> int:
    """The revision that the magic names, when this version reads it."""
    if not head:
        raise FramingError("the file is empty")
    if head[:8] == PART_MAGIC:
        raise FramingError("is a part file; open the entry file, whose name has no .part- ending")
    if head[:7] != STEM[: len(head)]:
        raise FramingError(f"is not a .ninfer artifact: it begins with {head[:8].hex()}")
    if len(head) < 8:
        raise FramingError(f"cut short inside the {HEADER_BYTES}-byte header, at {len(head)} bytes")
    framing = head[7]
    if framing == 0:
        raise FramingError(f"framing v0 does not exist; this version reads v1 to v{NEWEST}")
    if framing > NEWEST:
        raise FramingError(
            f"framing v{framing} is newer than this version reads (v1 to v{NEWEST}):"
            f" install a newer ninfer, or fetch a v{NEWEST} form of this artifact"
        )
    return framing
