"""Map an artifact file and hand out its tensors and resources by name."""

import mmap
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import torch
from torch import Tensor

from ninfer.artifact.directory import Directory, Entry, Identity, ResourceEntry, TensorEntry
from ninfer.artifact.framing import ArtifactHeader, open_regular, read_open_header
from ninfer.artifact.payload import view_object
from ninfer.errors import ArtifactError, InventoryError
from ninfer.formats import PackedMatrix

# Linux counts a private writable mapping as memory in use unless told not to, and then refuses to
# map a file larger than the memory. Python 3.11 has no name for the flag; this is Linux's value.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


class Artifact:
    """An open artifact: the directory, and tensors that are views of the mapped file.

    The mapping is private and copy-on-write: nothing that is done to a tensor reaches the file. It
    lives as long as any tensor of it does, also after close().
    """

    def __init__(self, header: ArtifactHeader, mapping: mmap.mmap) -> None:
        self._header = header
        self._mapping: mmap.mmap | None = mapping

    @property
    def path(self) -> Path:
        """The file as it was opened."""
        return self._header.path

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
        """Bytes of the whole file."""
        return self._header.file_size

    def entry(self, name: str) -> Entry:
        """The directory entry of that name. Raises InventoryError when there is none."""
        found = self.directory.by_name.get(name)
        if found is None:
            raise InventoryError(f"{self.path}: there is no object {name!r}")
        return found

    def tensor(self, name: str) -> Tensor | PackedMatrix:
        """The tensor object of that name, as views of the file.

        Raises InventoryError when there is none, PayloadError for a broken NVFP4 divisor.
        """
        entry = self.entry(name)
        if not isinstance(entry, TensorEntry):
            raise InventoryError(f"{self.path}: object {name!r} is a resource, not a tensor")
        words = torch.frombuffer(
            self._mapped(),
            dtype=torch.uint8,
            count=entry.bytes,
            offset=self.payload_offset + entry.offset,
        )
        return view_object(entry, words)

    def resource(self, name: str) -> bytes:
        """A copy of the resource of that name. Raises InventoryError when there is none."""
        entry = self.entry(name)
        if not isinstance(entry, ResourceEntry):
            raise InventoryError(f"{self.path}: object {name!r} is a tensor, not a resource")
        start = self.payload_offset + entry.offset
        return self._mapped()[start : start + entry.bytes]

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
        self._mapping = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _mapped(self) -> mmap.mmap:
        if self._mapping is None:
            raise ArtifactError(f"{self.path}: the artifact is closed")
        return self._mapping


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Open an artifact. Reads the header and directory only; the payload is mapped, not read.

    Raises ArtifactError when the file cannot be opened or mapped, FramingError when it is not a
    container of a revision that this version reads, DirectoryError when an object breaks a rule.
    """
    where = Path(path)
    with open_regular(where) as file:
        header = read_open_header(file, where)
        return Artifact(header, _map(file, header))


def _map(file: BinaryIO, header: ArtifactHeader) -> mmap.mmap:
    try:
        return mmap.mmap(
            file.fileno(),
            header.file_size,
            flags=mmap.MAP_PRIVATE | _NO_RESERVE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
    except OSError as error:
        raise ArtifactError(f"{header.path}: cannot be mapped: {error.strerror}") from error
