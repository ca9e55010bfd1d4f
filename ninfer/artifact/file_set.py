"""Write the files of one artifact under temporary names, and put all in place at once."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import BinaryIO, Final

from ninfer.artifact.file_plan import PlannedFile
from ninfer.errors import ArtifactError

_ZEROS: Final = bytes(1 << 16)


class FileSet:
    """A stream of payload bytes that is cut into the planned files.

    Files are renamed in `commit`, parts first and the entry file last, so that an entry file is
    never there without its parts. Until then, what was at these names before stays as it was.
    """

    def __init__(self, path: Path, files: tuple[PlannedFile, ...]) -> None:
        """Raises ArtifactError for a path that cannot name a file."""
        if not path.name or path.is_dir():
            raise ArtifactError(f"{path}: is a directory; name the file to write")
        mark = secrets.token_hex(4)
        self._path = path
        self._files = files
        self._targets = [path if f.name is None else path.with_name(f.name) for f in files]
        self._partials = [t.with_name(f".{t.name}.{mark}.partial") for t in self._targets]
        self._made: list[Path] = []
        self._file: BinaryIO | None = None
        self._index = -1
        self._room = 0
        self.position = 0

    def open(self) -> None:
        """Begin the first file. Raises ArtifactError when it cannot be created or written."""
        assert self._index < 0, "a file set is written once"
        self._next_file()

    def write(self, piece: bytes | memoryview) -> None:
        """Append payload bytes. Raises ArtifactError when the disk refuses."""
        assert self._index >= 0, "open first"
        rest = memoryview(piece)
        while len(rest):
            if not self._room:
                self._next_file()
            part = rest[: self._room]
            self._put(part)
            self._room -= len(part)
            self.position += len(part)
            rest = rest[len(part) :]

    def pad_to(self, position: int) -> None:
        """Append zero bytes up to a payload position."""
        while self.position < position:
            self.write(_ZEROS[: position - self.position])

    def commit(self) -> None:
        """Put all files in place. Raises ArtifactError when the disk refuses."""
        while self._index + 1 < len(self._files):
            self._next_file()
        assert not self._room, "payload bytes are missing"
        try:
            self._close_whole()
            pairs = list(zip(self._partials, self._targets, strict=True))
            for partial, target in (*pairs[1:], pairs[0]):
                partial.replace(target)
            _sync_folder(self._path.parent)
        except OSError as error:
            raise self._refused(error) from error

    def discard(self) -> None:
        """Close, and remove the temporary files that were not put in place."""
        # Closing flushes; when the disk refused before, it refuses again, and that is known.
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
        for partial in self._made:
            partial.unlink(missing_ok=True)

    def _next_file(self) -> None:
        try:
            self._close_whole()
        except OSError as error:
            raise self._refused(error) from error
        self._index += 1
        # Noted before it is made, so that a signal in between leaves nothing behind.
        self._made.append(self._partials[self._index])
        try:
            self._file = self._partials[self._index].open("xb")
        except (OSError, ValueError) as error:
            # Not ours to remove. ValueError: a path with a null character.
            self._made.pop()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ArtifactError(f"{self._path}: cannot be created: {reason}") from error
        planned = self._files[self._index]
        self._put(planned.head)
        self._room = planned.payload_bytes

    def _close_whole(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def _put(self, piece: bytes | memoryview) -> None:
        assert self._file is not None
        try:
            self._file.write(piece)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> ArtifactError:
        return ArtifactError(f"{self._path}: cannot be written: {error.strerror}")


def _sync_folder(folder: Path) -> None:
    """Make the renames themselves survive a power cut, where the file system can promise that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
