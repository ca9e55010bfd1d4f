"""Map an artifact file and hand out its tensors and resources by name."""

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from torch import Tensor

from ninfer.artifact.directory import Directory, Entry, Identity, ResourceEntry, TensorEntry
from ninfer.artifact.framing import ArtifactHeader, open_regular, read_open_header
from ninfer.artifact.model_map import FileSpan
from ninfer.artifact.payload import view_object
from ninfer.artifact.payload_files import PayloadFiles
from ninfer.errors import ArtifactError, InventoryError
from ninfer.formats import PackedMatrix


class Artifact:
    """An open artifact of any revision: the directory, and tensors that are views of the files.

    Mappings are private and copy-on-write: nothing that is done to a tensor reaches a file. They
    live as long as any tensor of them does, also after close(). A tensor that straddles part files
    is a copy.
    """

    def __init__(self, header: ArtifactHeader, payload: PayloadFiles) -> None:
        self._header = header
        self._payload: PayloadFiles | None = payload

    @property
    def path(self) -> Path:
        """The file as it was opened."""
        return self._header.path

    @property
    def framing(self) -> int:
        """Revision of the container: 1, 2 or 3."""
        return self._header.framing

    @property
    def artifact_id(self) -> bytes:
        """What ties the part files of a v3 artifact together; empty before v3."""
        return self._header.artifact_id

    @property
    def files(self) -> tuple[FileSpan, ...]:
        """The files that hold the payload, the opened one first."""
        return self._header.files

    @property
    def identity(self) -> Identity:
        """Model and weights that the file says it holds."""
        return self._header.directory.identity

    @property
    def directory(self) -> Directory:
        """All entries in file order."""
        return self._header.directory

    @property
    def names(self) -> tuple[str, ...]:
        """Object names in file order."""
        return tuple(entry.name for entry in self.directory.entries)

    @property
    def payload_offset(self) -> int:
        """File offset that entry offsets count from."""
        return self._header.payload_offset

    @property
    def file_size(self) -> int:
        """Bytes of the opened file, part files of v3 not included."""
        return self._header.file_size

    def entry(self, name: str) -> Entry:
        """The directory entry of that name. Raises InventoryError when there is none."""
        found = self.directory.by_name.get(name)
        if found is None:
            raise InventoryError(f"{self.path}: there is no object {name!r}")
        return found

    def tensor(self, name: str) -> Tensor | PackedMatrix:
        """The tensor object of that name, as views of the file.

        Raises InventoryError when there is none, PayloadError for a broken NVFP4 divisor,
        ArtifactError for a part file that is missing or another artifact's.
        """
        entry = self.entry(name)
        if not isinstance(entry, TensorEntry):
            raise InventoryError(f"{self.path}: object {name!r} is a resource, not a tensor")
        words = self._open().view(entry.offset, entry.bytes)
        return view_object(entry, words)

    def tensor_through(
        self, name: str, fetch: Callable[[int, Callable[[int, memoryview], None]], Tensor]
    ) -> Tensor | PackedMatrix:
        """The tensor object of that name over bytes that `fetch` brings where it wants them.

        It is given their number and what fills a buffer from an offset on, for any thread. Raises
        as `tensor` does.
        """
        entry = self.entry(name)
        if not isinstance(entry, TensorEntry):
            raise InventoryError(f"{self.path}: object {name!r} is a resource, not a tensor")
        payload = self._open()
        # Opens part files, which only one thread may do.
        payload.view(entry.offset, min(entry.bytes, 1))
        payload.view(entry.offset + entry.bytes - 1, 1)

        def read(start: int, out: memoryview) -> None:
            payload.read_into(entry.offset + start, out)

        return view_object(entry, fetch(entry.bytes, read))

    def resource(self, name: str) -> bytes:
        """A copy of the resource of that name.

        Raises InventoryError when there is none, ArtifactError as `tensor` does.
        """
        entry = self.entry(name)
        if not isinstance(entry, ResourceEntry):
            raise InventoryError(f"{self.path}: object {name!r} is a tensor, not a resource")
        return self._open().read(entry.offset, entry.bytes)

    def payload(self, offset: int, count: int) -> bytes:
        """A copy of bytes of the payload, padding between objects included.

        Raises ArtifactError as `tensor` does.
        """
        return self._open().read(offset, count)

    def verify_payload(self, name: str) -> None:
        """Read every word of an object. Raises PayloadError for one that no writer may produce.

        Direct tensors and resources may hold any bytes, so for them nothing can be wrong.
        """
        if isinstance(self.entry(name), ResourceEntry):
            return
        value = self.tensor(name)
        if not isinstance(value, Tensor):
            value.validate(name)

    def close(self) -> None:
        """Let go of the file; tensors that were handed out stay usable. May be called twice."""
        self._payload = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> PayloadFiles:
        if self._payload is None:
            raise ArtifactError(f"{self.path}: the artifact is closed")
        return self._payload


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Open an artifact. Reads the header and directory only; the payload is mapped, not read.

    Raises ArtifactError when the file cannot be opened or mapped, FramingError when it is not a
    container of a revision that this version reads, DirectoryError when an object breaks a rule.
    """
    where = Path(path)
    with open_regular(where) as file:
        header = read_open_header(file, where)
        return Artifact(header, PayloadFiles(header, file))
