"""Weights to a card: several threads read the file into pinned memory, from where copies go on."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

# One thread reads some 8 GB/s from the page cache, a card takes 50.
THREADS: Final = 8
SLOTS: Final = 16
SLOT_BYTES: Final = 4 << 20

# Fills a buffer with the bytes of an object from an offset on.
Read = Callable[[int, memoryview], None]


class Card(Protocol):
    """What the ring needs of a device; bytes are uint8 tensors."""

    def pinned(self, count: int) -> Tensor:
        """Host memory that copies may read while the host goes on."""

    def empty(self, count: int) -> Tensor:
        """Memory of the device."""

    def copy(self, target: Tensor, source: Tensor) -> Callable[[], object]:
        """Begin a copy of host memory; what is returned waits until the source has been read."""


@dataclass(frozen=True, slots=True)
class CudaCard:
    """A CUDA device; copies are ordered with all else on its current stream."""

    device: torch.device

    def pinned(self, count: int) -> Tensor:
        """See Card."""
        return torch.empty(count, dtype=torch.uint8, pin_memory=True)

    def empty(self, count: int) -> Tensor:
        """See Card."""
        return torch.empty(count, dtype=torch.uint8, device=self.device)

    def copy(self, target: Tensor, source: Tensor) -> Callable[[], object]:
        """See Card."""
        target.copy_(source, non_blocking=True)
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(self.device))
        return done.synchronize


@dataclass(slots=True)
class _Slot:
    """Pinned memory, and what waits until the last copy from it is over."""

    words: Tensor
    released: Callable[[], object] | None = None


class UploadRing:
    """Brings objects to a card through a ring of pinned slots; close it when all are there.

    Reads run ahead of copies by up to all slots; a slot is filled again once its copy is over.
    """

    def __init__(
        self,
        card: Card,
        *,
        slots: int = SLOTS,
        slot_bytes: int = SLOT_BYTES,
        threads: int = THREADS,
    ) -> None:
        self._card, self._slot_bytes = card, slot_bytes
        self._slots = [_Slot(card.pinned(slot_bytes)) for _ in range(slots)]
        self._next = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ninfer-read")

    def fetch(self, count: int, read: Read) -> Tensor:
        """Bytes [count] uint8 on the card, read in pieces by `read`; raises what a read raises."""
        out = self._card.empty(count)
        under_way: deque[tuple[_Slot, int, int, Future[None]]] = deque()
        try:
            for start in range(0, count, self._slot_bytes):
                if len(under_way) == len(self._slots):
                    self._send(out, *under_way.popleft())
                size = min(self._slot_bytes, count - start)
                slot = self._slots[self._next]
                self._next = (self._next + 1) % len(self._slots)
                if slot.released is not None:
                    slot.released()
                    slot.released = None
                buffer = slot.words.numpy().data[:size]
                under_way.append((slot, start, size, self._pool.submit(read, start, buffer)))
            while under_way:
                self._send(out, *under_way.popleft())
        finally:
            # After an error others still write into their slots.
            wait([one[-1] for one in under_way])
        return out

    def _send(self, out: Tensor, slot: _Slot, start: int, size: int, read: "Future[None]") -> None:
        read.result()
        slot.released = self._card.copy(out[start : start + size], slot.words[:size])

    def close(self) -> None:
        """Wait for copies under way and end the threads; the slots are free afterwards."""
        self._pool.shutdown()
        for slot in self._slots:
            if slot.released is not None:
                slot.released()
        self._slots = []
