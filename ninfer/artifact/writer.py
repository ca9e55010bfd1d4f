"""Write artifacts: declare all objects, stream their bytes to a temporary file, rename when whole.

The directory lies in front of the payload, so names, shapes and formats come first; sizes and
offsets follow from them.
"""

import contextlib
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from torch import Tensor

from ninfer.artifact.directory import (
    Directory,
    Entry,
    Identity,
    ResourceEntry,
    TensorEntry,
    encode_directory,
    parse_directory,
)
from ninfer.artifact.framing import MAX_JSON_BYTES, encode_header
from ninfer.artifact.layouts import (
    RAW_BYTES,
    TENSOR_ALIGNMENT,
    align_up,
    encoded_bytes,
    layout_of,
)
from ninfer.artifact.payload import object_pieces
from ninfer.errors import ArtifactError, DirectoryError, InventoryError
from ninfer.formats import DIRECT_DTYPES, PackedMatrix


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor to be written: layout and size follow from shape and format."""

    name: str
    shape: tuple[int, ...]
    format: str


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """A resource to be written, of a known length."""

    name: str
    bytes: int


Spec = TensorSpec | ResourceSpec


def plan_directory(identity: Identity, specs: Iterable[Spec]) -> Directory:
    """Lay objects one after another, tensors on 256-byte borders.

    Raises DirectoryError for names, shapes or formats that the container cannot hold.
    """
    entries: list[Entry] = []
    cursor = 0
    for spec in specs:
        entry = _place(spec, cursor)
        entries.append(entry)
        cursor = entry.offset + entry.bytes
    directory = Directory(identity, tuple(entries))
    text = encode_directory(directory)
    if len(text) > MAX_JSON_BYTES:
        raise DirectoryError(f"{len(entries)} objects need a directory of {len(text)} bytes")
    # What a reader would refuse is refused before a byte is written.
    return parse_directory(text)


class ArtifactWriter:
    """Streams objects in declared order; works as a context manager only.

    Leaving the context puts the file in place when every object was written. On an exception, or
    with an object missing, the temporary file is removed and a file that was at `path` before stays
    as it was. The context itself raises ArtifactError when the disk refuses, and InventoryError
    when an object is missing.
    """

    def __init__(
        self, path: str | os.PathLike[str], identity: Identity, specs: Iterable[Spec]
    ) -> None:
        """Lay out the file.

        Raises DirectoryError for specs that the container cannot hold, ArtifactError for a path
        that cannot name a file.
        """
        self._path = Path(path)
        if not self._path.name or self._path.is_dir():
            raise ArtifactError(f"{self._path}: is a directory; name the file to write")
        self._partial = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.partial")
        self._directory = plan_directory(identity, specs)
        self._head = encode_header(encode_directory(self._directory))
        self._next = 0
        self._file: BinaryIO | None = None

    @property
    def directory(self) -> Directory:
        """Entries with the offsets that the objects get."""
        return self._directory

    def write_tensor(self, name: str, value: Tensor | PackedMatrix) -> None:
        """Append the next object. Raises InventoryError for another name, shape or format."""
        entry = self._expect(name)
        if not isinstance(entry, TensorEntry):
            raise InventoryError(f"object {name!r} is declared a resource, got a tensor")
        pieces = object_pieces(entry, value)
        self._pad_to(entry.offset)
        for piece in pieces:
            self._put(piece)
        self._finish(entry)

    def write_resource(self, name: str, data: bytes) -> None:
        """Append the next object. Raises InventoryError for another name or length."""
        entry = self._expect(name)
        if not isinstance(entry, ResourceEntry):
            raise InventoryError(f"object {name!r} is declared a tensor, got bytes")
        if len(data) != entry.bytes:
            raise InventoryError(
                f"object {name!r} is declared with {entry.bytes} bytes, got {len(data)}"
            )
        self._pad_to(entry.offset)
        self._put(data)
        self._finish(entry)

    def __enter__(self) -> Self:
        assert self._file is None, "a writer writes one file"
        try:
            self._file = self._partial.open("xb")
        except (OSError, ValueError) as error:
            # ValueError: a path with a null character.
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ArtifactError(f"{self._path}: cannot be created: {reason}") from error
        try:
            self._put(self._head)
        except ArtifactError:
            self._discard()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._commit()
        finally:
            self._discard()

    def _commit(self) -> None:
        missing = self._directory.entries[self._next :]
        if missing:
            raise InventoryError(
                f"{self._path}: {len(missing)} declared objects were not written, the first is"
                f" {missing[0].name!r}"
            )
        file = self._open_file()
        try:
            file.flush()
            os.fsync(file.fileno())
            self._partial.replace(self._path)
            _sync_folder(self._path.parent)
        except OSError as error:
            raise ArtifactError(f"{self._path}: cannot be written: {error.strerror}") from error

    def _discard(self) -> None:
        """Close the temporary file, and remove it unless it was put in place."""
        # Closing flushes; when the disk refused before, it refuses again, and that is known.
        with contextlib.suppress(OSError):
            self._open_file().close()
        self._partial.unlink(missing_ok=True)

    def _expect(self, name: str) -> Entry:
        if self._next == len(self._directory.entries):
            raise InventoryError(f"object {name!r} comes after the last declared object")
        entry = self._directory.entries[self._next]
        if entry.name != name:
            raise InventoryError(
                f"object {name!r} comes out of order; {entry.name!r} was declared next"
            )
        return entry

    def _open_file(self) -> BinaryIO:
        assert self._file is not None, "enter the writer's context first"
        return self._file

    def _pad_to(self, offset: int) -> None:
        self._put(bytes(len(self._head) + offset - self._open_file().tell()))

    def _finish(self, entry: Entry) -> None:
        written = self._open_file().tell() - len(self._head)
        assert written == entry.offset + entry.bytes, (entry, written)
        self._next += 1

    def _put(self, piece: bytes | memoryview) -> None:
        try:
            self._open_file().write(piece)
        except OSError as error:
            raise ArtifactError(f"{self._path}: cannot be written: {error.strerror}") from error


def write_artifact(
    path: str | os.PathLike[str],
    identity: Identity,
    objects: Sequence[tuple[str, Tensor | PackedMatrix | bytes]],
) -> None:
    """Write objects that are all in memory; see ArtifactWriter for what happens on failure.

    The format of a plain tensor is that of its dtype. Raises DirectoryError for a dtype that the
    container does not store.
    """
    with ArtifactWriter(path, identity, [_spec(name, value) for name, value in objects]) as writer:
        for name, value in objects:
            if isinstance(value, bytes):
                writer.write_resource(name, value)
            else:
                writer.write_tensor(name, value)


def _spec(name: str, value: Tensor | PackedMatrix | bytes) -> Spec:
    if isinstance(value, bytes):
        return ResourceSpec(name, len(value))
    if not isinstance(value, Tensor):
        return TensorSpec(name, value.shape, value.format)
    for format, dtype in DIRECT_DTYPES.items():
        if value.dtype == dtype:
            return TensorSpec(name, tuple(value.shape), format)
    raise DirectoryError(f"object {name!r}: no format stores {value.dtype} words")


def _place(spec: Spec, cursor: int) -> Entry:
    if isinstance(spec, ResourceSpec):
        return ResourceEntry(spec.name, RAW_BYTES, cursor, spec.bytes)
    try:
        layout = layout_of(spec.format)
        size = encoded_bytes(spec.format, layout, spec.shape)
    except DirectoryError as error:
        raise DirectoryError(f"object {spec.name!r}: {error}") from None
    offset = align_up(cursor, TENSOR_ALIGNMENT)
    return TensorEntry(spec.name, spec.shape, spec.format, layout, offset, size)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the file system can promise that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
