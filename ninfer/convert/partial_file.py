"""An artifact being written, in a file and a journal that survive the process.

The file lies beside its final name as `NAME.partial` and has its full length from the start; the
journal, `NAME.partial.journal`, has one JSON line for what is converted and one for each finished
object with the SHA-256 of its bytes. What a journal promises is read again before it is trusted.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from torch import Tensor

from ninfer.artifact import Entry, TensorEntry
from ninfer.artifact.file_plan import FilePlan
from ninfer.artifact.layouts import planes
from ninfer.artifact.payload import plane_words
from ninfer.artifact.space import check_space
from ninfer.errors import ArtifactError
from ninfer.formats import PackedMatrix

Progress = Callable[[str, int, int], None]

_CHUNK: Final = 1 << 22


class PartialArtifact:
    """Works as a context manager that keeps both files when it is left, until `commit`."""

    def __init__(self, path: Path, plan: FilePlan, conversion: str) -> None:
        """Name the files; `conversion` is a digest of all that decides on the bytes.

        Raises ArtifactError when `path` cannot name a file.
        """
        if not path.name or path.is_dir():
            raise ArtifactError(f"{path}: is a directory; name the file to write")
        self.final = path
        self.path = path.with_name(f"{path.name}.partial")
        self._journal_path = path.with_name(f"{path.name}.partial.journal")
        self._entries = plan.directory.entries
        (file,) = plan.files
        self._head = file.head
        self._size = len(file.head) + file.payload_bytes
        self._plan = {"conversion": conversion}
        self._file = -1
        self._journal = -1

    def __enter__(self) -> Self:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            self._journal = os.open(self._journal_path, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._close()
            raise ArtifactError(f"{self.path}: another conversion is writing it") from None
        except (OSError, ValueError) as error:
            self._close()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ArtifactError(f"{self.final}: cannot be created: {reason}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def resume(self, progress: Progress | None = None) -> int:
        """How many leading objects are there already, each compared with its checksum.

        Everything after them is forgotten. Raises ArtifactError when the files belong to another
        conversion, or when the disk has no room for the rest.
        """
        lines = self._journal_lines()
        if lines and lines[0] != self._plan:
            raise ArtifactError(
                f"{self.path}: is part of another conversion, of other sources or options; "
                "delete it or choose another output"
            )
        trusted = self._trusted(lines[1:], progress) if lines else 0
        there = os.fstat(self._file).st_blocks * 512
        check_space(self.final, max(self._size - there, 0))
        self._try(os.ftruncate, self._file, self._size)
        self._pwrite(self._head, 0)
        kept = [self._plan, *lines[1 : trusted + 1]]
        self._try(os.ftruncate, self._journal, 0)
        self._try(os.lseek, self._journal, 0, os.SEEK_SET)
        for line in kept:
            self._note(line)
        return trusted

    def put_rows(self, entry: TensorEntry, start: int, value: Tensor | PackedMatrix) -> None:
        """Write rows of an object, or all of a direct one, from row `start` on."""
        places = planes(entry.format, entry.layout, entry.shape)
        rows = entry.shape[0] if entry.shape else 1
        count = value.shape[0] if value.shape else 1
        for plane, words in zip(places, plane_words(value), strict=True):
            if words is None:
                continue
            # The divisor of an NVFP4 matrix is one word for all rows.
            first = plane.bytes * start // rows if plane.bytes >= rows else 0
            assert len(words) in (plane.bytes * count // rows, plane.bytes), entry.name
            self._pwrite(words, len(self._head) + entry.offset + plane.offset + first)

    def put_bytes(self, entry: Entry, data: bytes) -> None:
        """Write a resource."""
        assert len(data) == entry.bytes, entry.name
        self._pwrite(data, len(self._head) + entry.offset)

    def finish(self, entry: Entry) -> None:
        """Record a whole object."""
        self._note({"name": entry.name, "sha256": self._digest(entry)})

    def commit(self) -> None:
        """Put the file in place and drop the journal. Raises ArtifactError if the disk refuses."""
        try:
            os.fsync(self._file)
            self.path.replace(self.final)
            with contextlib.suppress(OSError):
                self._journal_path.unlink()
        except OSError as error:
            raise ArtifactError(f"{self.final}: cannot be written: {error.strerror}") from error

    def _journal_lines(self) -> list[dict[str, Any]]:
        """Whole lines of the journal; one that was cut short by a crash ends it."""
        text = b""
        while chunk := os.read(self._journal, _CHUNK):
            text += chunk
        lines = []
        for line in text.split(b"\n")[:-1]:
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
        return lines

    def _trusted(self, lines: list[dict[str, Any]], progress: Progress | None) -> int:
        total = sum(entry.bytes for entry in self._entries)
        done = 0
        for index, (line, entry) in enumerate(zip(lines, self._entries, strict=False)):
            if line != {"name": entry.name, "sha256": self._digest(entry)}:
                return index
            done += entry.bytes
            if progress:
                progress(f"checking {entry.name}", done, total)
        return min(len(lines), len(self._entries))

    def _digest(self, entry: Entry) -> str:
        digest, end = hashlib.sha256(), len(self._head) + entry.offset + entry.bytes
        at = end - entry.bytes
        while at < end:
            chunk = os.pread(self._file, min(_CHUNK, end - at), at)
            if not chunk:
                break
            digest.update(chunk)
            at += len(chunk)
        return digest.hexdigest()

    def _note(self, line: object) -> None:
        text = json.dumps(line).encode() + b"\n"
        written = self._try(os.write, self._journal, text)
        if written != len(text):
            raise ArtifactError(f"{self._journal_path}: cannot be written: the disk is full")

    def _pwrite(self, data: bytes | memoryview, offset: int) -> None:
        left = memoryview(data)
        while left:
            written = self._try(os.pwrite, self._file, left, offset)
            left, offset = left[written:], offset + written

    def _try(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except OSError as error:
            raise ArtifactError(f"{self.final}: cannot be written: {error.strerror}") from error

    def _close(self) -> None:
        for handle in (self._journal, self._file):
            if handle >= 0:
                os.close(handle)
        self._file = self._journal = -1
