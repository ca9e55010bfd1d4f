"""The logical payload over one or several mapped files; part files are opened when first needed."""

import mmap
import os
import weakref
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from ninfer.artifact.framing import (
    HEADER_BYTES,
    ID_BYTES,
    PAYLOAD_ALIGNMENT,
    ArtifactHeader,
    check_part_header,
    open_regular,
)
from ninfer.artifact.layouts import TENSOR_ALIGNMENT
from ninfer.artifact.model_map import FileSpan
from ninfer.errors import ArtifactError, FramingError

# Linux counts a private writable mapping as memory in use unless told not to, and then refuses to
# map a file larger than the memory. Python 3.11 has no name for the flag; this is Linux's value.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


@dataclass(frozen=True, slots=True)
class _Run:
    """Bytes of one file: `count` of them from `offset` on."""

    file: int
    mapping: mmap.mmap
    offset: int
    count: int


class PayloadFiles:
    """Ranges of the payload as tensors or bytes. Mappings are private and copy-on-write.

    `read_into` may be called by several threads at once.
    """

    def __init__(self, header: ArtifactHeader, entry_file: BinaryIO) -> None:
        """Map the entry file. Raises ArtifactError when it cannot be mapped."""
        self._header = header
        # Logical offset at which each file's span ends.
        self._ends = tuple(accumulate(span.payload_bytes for span in header.files))
        self._mappings: dict[int, mmap.mmap] = {
            0: _mapped(entry_file, header.path, header.file_size)
        }
        self._descriptors: dict[int, int] = {}
        self._keep(0, entry_file)

    def view(self, offset: int, count: int) -> Tensor:
        """Bytes [count] uint8 of the payload; a view where they lie aligned in one file.

        Raises ArtifactError or FramingError, naming the part file, when one that holds some of the
        bytes is missing or is not the one that the entry file describes.
        """
        runs = self._runs(offset, count)
        if len(runs) == 1 and runs[0].offset % TENSOR_ALIGNMENT == 0:
            return _tensor(runs[0])
        # Words may only be read where they are aligned, and in one piece.
        out = torch.empty(count, dtype=torch.uint8)
        done = 0
        for run in runs:
            out[done : done + run.count] = _tensor(run)
            done += run.count
        return out

    def read(self, offset: int, count: int) -> bytes:
        """A copy of bytes of the payload. Raises as `view` does."""
        runs = self._runs(offset, count)
        return b"".join(run.mapping[run.offset : run.offset + run.count] for run in runs)

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill `out` with bytes of the payload, past the mappings: reads of many pages at once.

        Raises as `view` does, and ArtifactError when the system cannot read it.
        """
        done = 0
        for run in self._runs(offset, len(out)):
            part, place = out[done : done + run.count], run.offset
            done += run.count
            while part:
                try:
                    count = os.preadv(self._descriptors[run.file], [part], place)
                except OSError as error:
                    raise ArtifactError(
                        f"{self._header.path}: cannot be read: {error.strerror}"
                    ) from error
                if not count:
                    raise ArtifactError(f"{self._header.path}: was cut while it was read")
                part, place = part[count:], place + count

    def _keep(self, index: int, file: BinaryIO) -> None:
        """Keep a way to read a file after its own object is closed."""
        descriptor = os.dup(file.fileno())
        self._descriptors[index] = descriptor
        weakref.finalize(self, os.close, descriptor)

    def _runs(self, offset: int, count: int) -> list[_Run]:
        runs = []
        start = 0
        for index, end in enumerate(self._ends):
            low, high = max(offset, start), min(offset + count, end)
            if low < high:
                first = PAYLOAD_ALIGNMENT if index else self._header.payload_offset
                runs.append(_Run(index, self._mapping(index), first + low - start, high - low))
            start = end
        assert sum(run.count for run in runs) == count, (offset, count, self._ends)
        return runs

    def _mapping(self, index: int) -> mmap.mmap:
        if index not in self._mappings:
            self._mappings[index] = self._open_part(index, self._header.files[index])
        return self._mappings[index]

    def _open_part(self, index: int, span: FileSpan) -> mmap.mmap:
        assert span.path is not None, index
        path = self._header.path.with_name(span.path)
        with open_part(path, index, span, self._header.artifact_id) as file:
            self._keep(index, file)
            return _mapped(file, path, PAYLOAD_ALIGNMENT + span.payload_bytes)


def open_part(path: Path, index: int, span: FileSpan, artifact_id: bytes) -> BinaryIO:
    """Open a part file and check its header and length.

    Raises ArtifactError when it is missing or unreadable, FramingError when it is another file.
    """
    try:
        file = open_regular(path)
    except ArtifactError as error:
        raise ArtifactError(f"{error}; it is part {index} of the artifact") from None
    try:
        head = file.read(HEADER_BYTES + ID_BYTES)
        size = file.seek(0, 2)
        check_part_header(head, size, index, span, artifact_id)
    except FramingError as error:
        file.close()
        raise FramingError(f"{path}: {error}") from None
    except OSError as error:
        file.close()
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    return file


def _tensor(run: _Run) -> Tensor:
    return torch.frombuffer(run.mapping, dtype=torch.uint8, count=run.count, offset=run.offset)


def _mapped(file: BinaryIO, path: Path, size: int) -> mmap.mmap:
    try:
        return mmap.mmap(
            file.fileno(),
            size,
            flags=mmap.MAP_PRIVATE | _NO_RESERVE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be mapped: {error.strerror}") from error
