"""Write artifacts: declare all objects, stream their bytes to temporary files, rename when whole.

The directory lies in front of the payload, so names, shapes and formats come first; sizes and
offsets follow from them.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from torch import Tensor

from ninfer.artifact.directory import Directory, Entry, Identity, ResourceEntry, TensorEntry
from ninfer.artifact.directory_v3 import identity_of
from ninfer.artifact.file_plan import FILE_LIMIT, FilePlan, plan_v2, plan_v3
from ninfer.artifact.file_set import FileSet
from ninfer.artifact.layouts import (
    RAW_BYTES,
    TENSOR_ALIGNMENT,
    align_up,
    encoded_bytes,
    layout_of,
)
from ninfer.artifact.model_map import ModelMap
from ninfer.artifact.payload import object_pieces
from ninfer.errors import DirectoryError, InventoryError
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


def plan_directory(owner: Identity | ModelMap, specs: Iterable[Spec]) -> Directory:
    """Lay objects one after another, tensors on 256-byte borders.

    An identity makes a v2 directory, a model map a v3 directory whose files are not settled yet.
    Raises DirectoryError for names, shapes or formats that the container cannot hold.
    """
    entries: list[Entry] = []
    cursor = 0
    for spec in specs:
        entry = _place(spec, cursor)
        entries.append(entry)
        cursor = entry.offset + entry.bytes
    if isinstance(owner, ModelMap):
        return Directory(identity_of(owner.metadata), tuple(entries), owner)
    # What a reader would refuse is refused before a byte is written.
    return plan_v2(Directory(owner, tuple(entries))).directory


class ArtifactWriter:
    """Streams objects in declared order; works as a context manager only.

    Leaving the context puts the files in place when every object was written. On an exception, or
    with an object missing, the temporary files are removed and a file that was at `path` before
    stays as it was. The context itself raises ArtifactError when the disk refuses, and
    InventoryError when an object is missing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        owner: Identity | ModelMap,
        specs: Iterable[Spec],
        *,
        artifact_id: bytes | None = None,
        file_limit: int = FILE_LIMIT,
    ) -> None:
        """Lay out the files: one of v2 for an identity, one or more of v3 for a model map.

        `artifact_id` (16 bytes, random by default) and `file_limit` (bytes a file) are for v3.
        Raises DirectoryError for specs that the container cannot hold, UsageError for a limit too
        small for the directory, ArtifactError for a path that cannot name a file.
        """
        self._path = Path(path)
        directory = plan_directory(owner, specs)
        plan: FilePlan
        if directory.model_map is None:
            plan = plan_v2(directory)
        else:
            plan = plan_v3(
                directory, self._path.name, artifact_id=artifact_id, file_limit=file_limit
            )
        self._directory = plan.directory
        self._files = FileSet(self._path, plan.files)
        self._next = 0

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
        self._files.pad_to(entry.offset)
        for piece in pieces:
            self._files.write(piece)
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
        self._files.pad_to(entry.offset)
        self._files.write(data)
        self._finish(entry)

    def __enter__(self) -> Self:
        try:
            self._files.open()
        except BaseException:
            # Also when a signal ends the process here.
            self._files.discard()
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
            self._files.discard()

    def _commit(self) -> None:
        missing = self._directory.entries[self._next :]
        if missing:
            raise InventoryError(
                f"{self._path}: {len(missing)} declared objects were not written, the first is"
                f" {missing[0].name!r}"
            )
        self._files.commit()

    def _expect(self, name: str) -> Entry:
        if self._next == len(self._directory.entries):
            raise InventoryError(f"object {name!r} comes after the last declared object")
        entry = self._directory.entries[self._next]
        if entry.name != name:
            raise InventoryError(
                f"object {name!r} comes out of order; {entry.name!r} was declared next"
            )
        return entry

    def _finish(self, entry: Entry) -> None:
        assert self._files.position == entry.offset + entry.bytes, (entry, self._files.position)
        self._next += 1


def write_artifact(
    path: str | os.PathLike[str],
    owner: Identity | ModelMap,
    objects: Sequence[tuple[str, Tensor | PackedMatrix | bytes]],
    *,
    artifact_id: bytes | None = None,
    file_limit: int = FILE_LIMIT,
) -> None:
    """Write objects that are all in memory; see ArtifactWriter for what happens on failure.

    The format of a plain tensor is that of its dtype. Raises DirectoryError for a dtype that the
    container does not store.
    """
    specs = [_spec(name, value) for name, value in objects]
    with ArtifactWriter(
        path, owner, specs, artifact_id=artifact_id, file_limit=file_limit
    ) as writer:
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
