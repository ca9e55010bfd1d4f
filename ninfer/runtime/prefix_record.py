"""A cached entry as bytes: pages between two borders and the state behind them, with a checksum.

    8 bytes   magic
    u32, u32  version, bytes of the head
    head      salt, layout, chain hashes before and behind, first page, content of each page
    payload   pages of each tensor, then the state of each tensor
    32 bytes  BLAKE2b of everything before

Numbers are little-endian. Head, and each tensor, are filled up with zeros to a multiple of 64.
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ninfer.runtime.cache_views import CacheViews
from ninfer.runtime.config import PAGE_SIZE
from ninfer.runtime.prefix_keys import PageContent
from ninfer.runtime.prefix_match import MissReason

MAGIC: Final = b"NINFERPX"
VERSION: Final = 1
CHECKSUM_BYTES: Final = 32
_FRAME: Final = struct.Struct("<8sII")
_U32: Final = struct.Struct("<I")
_ALIGNMENT: Final = 64

TensorForm = tuple[torch.dtype, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class RecordForm:
    """What an entry must look like to be of use here: the tensors of a page and of a state."""

    layout: str
    pages: tuple[TensorForm, ...]
    state: tuple[TensorForm, ...]

    @classmethod
    def of(cls, pages: CacheViews, state: CacheViews) -> "RecordForm":
        """The form of entries of these caches."""
        layout = f"page of {PAGE_SIZE} tokens\n{pages.layout}state\n{state.layout}"
        return cls(layout, _forms(pages), _forms(state))


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Pages `start` to `start + len(contents)` of a chain, and the state behind the last.

    `before` and `chain` are the chain hashes at both ends. Tensors are in host memory.
    """

    salt: bytes
    layout: str
    before: bytes
    chain: bytes
    start: int
    contents: tuple[PageContent, ...]
    pages: tuple[Tensor, ...]  # [len(contents), ...] each
    state: tuple[Tensor, ...]  # [1, ...] each

    @property
    def length(self) -> int:
        """Pages from the start of the conversation to the state."""
        return self.start + len(self.contents)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.numel() * t.element_size() for t in (*self.pages, *self.state))


def encode(record: Record) -> Iterator[bytes | memoryview]:
    """The bytes of a record, piece by piece."""
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for piece in _pieces(record):
        digest.update(piece)
        yield piece
    yield digest.digest()


def encoded_bytes(record: Record) -> int:
    """How long `encode` will be."""
    return sum(len(piece) for piece in _pieces(record)) + CHECKSUM_BYTES


def decode(data: bytearray, form: RecordForm) -> Record | MissReason:
    """The record in these bytes, whose tensors are views of `data`; else why it is of no use."""
    body = memoryview(data)[:-CHECKSUM_BYTES]
    if len(data) < _FRAME.size + CHECKSUM_BYTES:
        return MissReason.STORED_DAMAGED
    found = hashlib.blake2b(body, digest_size=CHECKSUM_BYTES).digest()
    if found != data[-CHECKSUM_BYTES:]:
        return MissReason.STORED_DAMAGED
    magic, version, size = _FRAME.unpack_from(body)
    if (magic, version) != (MAGIC, VERSION):
        return MissReason.STORED_CHANGED
    try:
        return _Reader(body[_FRAME.size : _FRAME.size + size]).record(data, form, size)
    except (struct.error, UnicodeDecodeError):
        return MissReason.STORED_DAMAGED


def _pieces(record: Record) -> Iterator[bytes | memoryview]:
    head = _head(record)
    yield _FRAME.pack(MAGIC, VERSION, len(head)) + head
    for tensor in (*record.pages, *record.state):
        piece = tensor.contiguous().flatten().view(torch.uint8).numpy().data
        yield piece
        if missing := -len(piece) % _ALIGNMENT:
            yield bytes(missing)


def _head(record: Record) -> bytes:
    fields = [record.salt, record.layout.encode(), record.before, record.chain]
    head = b"".join(_U32.pack(len(field)) + field for field in fields)
    head += _U32.pack(record.start) + _U32.pack(len(record.contents))
    for content in record.contents:
        parts = (content.tokens, *content.media)
        head += _U32.pack(len(parts)) + b"".join(_U32.pack(len(p)) + p for p in parts)
    return head + bytes(-(len(head) + _FRAME.size) % _ALIGNMENT)


def _forms(views: CacheViews) -> tuple[TensorForm, ...]:
    return tuple((t.dtype, tuple(t.shape[1:])) for t in views.tensors)


class _Reader:
    """Reads the fields of a head in order."""

    def __init__(self, head: memoryview) -> None:
        self._head = head
        self._at = 0

    def record(self, data: bytearray, form: RecordForm, size: int) -> Record | MissReason:
        salt, layout = self._field(), self._field().decode()
        before, chain, start = self._field(), self._field(), self._number()
        contents = tuple(self._content() for _ in range(self._number()))
        if layout != form.layout:
            return MissReason.STORED_CHANGED
        if not contents:
            return MissReason.STORED_DAMAGED
        tensors, end = _tensors(data, form, len(contents), _FRAME.size + size)
        if tensors is None or end + CHECKSUM_BYTES != len(data):
            return MissReason.STORED_DAMAGED
        split = len(form.pages)
        pages, state = tensors[:split], tensors[split:]
        return Record(salt, layout, before, chain, start, contents, pages, state)

    def _number(self) -> int:
        (value,) = _U32.unpack_from(self._head, self._at)
        self._at += _U32.size
        return int(value)

    def _field(self) -> bytes:
        length = self._number()
        field = bytes(self._head[self._at : self._at + length])
        self._at += length
        return field

    def _content(self) -> PageContent:
        tokens, *media = (self._field() for _ in range(max(self._number(), 1)))
        return PageContent(tokens, tuple(media))


def _tensors(
    data: bytearray, form: RecordForm, pages: int, offset: int
) -> tuple[tuple[Tensor, ...] | None, int]:
    """Tensors from `offset` on and where they end; None when the bytes do not suffice."""
    tensors: list[Tensor] = []
    shapes = [(d, (pages, *s)) for d, s in form.pages] + [(d, (1, *s)) for d, s in form.state]
    for dtype, shape in shapes:
        count = torch.Size(shape).numel()
        length = count * dtype.itemsize
        if offset + length > len(data) - CHECKSUM_BYTES:
            return None, offset
        flat = torch.frombuffer(data, dtype=dtype, count=count, offset=offset)
        tensors.append(flat.view(shape))
        offset += length + -length % _ALIGNMENT
    return tuple(tensors), offset
