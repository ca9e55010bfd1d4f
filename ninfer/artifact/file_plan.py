"""Which bytes of a directory's payload go to which file, and what stands in front of them."""

import secrets
from dataclasses import dataclass, replace
from typing import Final

from ninfer.artifact.directory import Directory, encode_directory, parse_directory
from ninfer.artifact.directory_v3 import encode_directory_v3, parse_directory_v3
from ninfer.artifact.framing import (
    ID_BYTES,
    MAX_JSON_BYTES,
    PAYLOAD_ALIGNMENT,
    encode_header,
    encode_part_header,
    header_bytes,
    payload_start,
)
from ninfer.artifact.model_map import FileSpan
from ninfer.errors import DirectoryError, UsageError

# What a v3 writer puts into one file unless told otherwise.
FILE_LIMIT: Final = 32_000_000_000
_BLANK: Final = b" "


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file to write: its name (None for the entry file), first bytes, and payload bytes."""

    name: str | None
    head: bytes
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A directory with all offsets settled, and the files that hold it and its payload."""

    directory: Directory
    files: tuple[PlannedFile, ...]


def plan_v2(directory: Directory) -> FilePlan:
    """One v2 file. Raises DirectoryError for a directory that a reader would refuse."""
    text = encode_directory(directory)
    _check_length(text, directory)
    checked = parse_directory(text)
    return FilePlan(checked, (PlannedFile(None, encode_header(text), payload_bytes_of(directory)),))


def plan_v3(
    directory: Directory,
    entry_name: str,
    *,
    artifact_id: bytes | None = None,
    file_limit: int = FILE_LIMIT,
) -> FilePlan:
    """One v3 entry file and as many part files as `file_limit` bytes a file make necessary.

    Parts are named after the entry file. The id is random unless given. Raises DirectoryError for a
    directory that a reader would refuse, UsageError for a limit that the directory does not fit.
    """
    identity = secrets.token_bytes(ID_BYTES) if artifact_id is None else artifact_id
    text, spans = _settle(directory, entry_name, file_limit)
    checked = parse_directory_v3(text)
    heads = [encode_header(text, 3, identity)]
    heads += [encode_part_header(index, identity) for index in range(1, len(spans))]
    return FilePlan(
        checked,
        tuple(
            PlannedFile(span.path, head, span.payload_bytes)
            for span, head in zip(spans, heads, strict=True)
        ),
    )


def payload_bytes_of(directory: Directory) -> int:
    """Length of the payload: the end of the last object."""
    last = directory.entries[-1] if directory.entries else None
    return last.offset + last.bytes if last else 0


def split_payload(total: int, entry_name: str, start: int, file_limit: int) -> tuple[FileSpan, ...]:
    """Spans of `total` payload bytes when the entry file's payload begins at `start`.

    Each file but the last is filled with whole 4096-byte pages up to the limit. Raises UsageError
    for a limit below the entry file's directory or one page of payload.
    """
    first = _whole_pages(file_limit - start)
    later = _whole_pages(file_limit - PAYLOAD_ALIGNMENT)
    if total > first and (first < 0 or later <= 0):
        raise UsageError(
            f"a limit of {file_limit} bytes a file is too small; the entry file needs {start} and"
            f" each part {2 * PAYLOAD_ALIGNMENT}"
        )
    spans = [FileSpan(None, min(total, first))]
    rest = total - spans[0].payload_bytes
    while rest > 0:
        size = min(rest, later)
        spans.append(FileSpan(f"{entry_name}.part-{len(spans):04}", size))
        rest -= size
    return tuple(spans)


def _whole_pages(room: int) -> int:
    return room // PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT


def _settle(
    directory: Directory, entry_name: str, file_limit: int
) -> tuple[bytes, tuple[FileSpan, ...]]:
    """Directory text and spans that agree: the text names the spans, its length moves them."""
    total = payload_bytes_of(directory)
    start = header_bytes(3)
    while True:
        spans = split_payload(total, entry_name, start, file_limit)
        text = encode_directory_v3(replace(directory, files=spans))
        _check_length(text, directory)
        needed = payload_start(len(text), 3)
        if needed == start:
            return text, spans
        if needed < start:
            # A later start made the list of files shorter; blanks keep the start where it is.
            return text.ljust(start - PAYLOAD_ALIGNMENT - header_bytes(3) + 1, _BLANK), spans
        start = needed


def _check_length(text: bytes, directory: Directory) -> None:
    if len(text) > MAX_JSON_BYTES:
        count = len(directory.entries)
        raise DirectoryError(f"{count} objects need a directory of {len(text)} bytes")
