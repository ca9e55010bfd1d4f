"""Lanes: what rounds read and write of each sequence, in tensors that stay where they are."""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ninfer.runtime.config import RuntimeConfig, pages_for
from ninfer.runtime.logit_rules import is_penalised
from ninfer.runtime.rounds.upload import upload
from ninfer.runtime.sequence import Sequence

# Rounds of a sequence that may be under way at once, each a window long.
MOST_FLIGHTS: Final = 2
_WHOLE: Final = 7
_ALIGNED: Final = 16
_SIGNED: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Lanes:
    """The first B lanes, as views."""

    anchors: Tensor  # [B] int64, newest tokens
    frontiers: Tensor  # [B] int64, positions of the anchors
    slots: Tensor  # [B] int64, state slots
    shifts: Tensor  # [B] int64, what media add to a position
    whole: Tensor  # [3, B] int64: top_k, seed, row of counts (-1: no penalties)
    wide: Tensor  # [3, B] float64: temperature, top_p, min_p
    narrow: Tensor  # [3, B] float32: presence, frequency and repetition penalty
    pages: Tensor  # [B, P] int64
    given: Tensor  # [B, D] int64, drafts of the host; -2 leaves the place to the drafter


class LaneTable:
    """One lane for each sequence that takes part; a round has the first so many of them.

    The host writes a lane when its sequence joins. From then on rounds move its anchor and
    frontier, and the host only adds pages. Counts of generated ids lie by state slot.
    """

    def __init__(self, runtime: RuntimeConfig, vocab_rows: int) -> None:
        lanes, device = runtime.state_slots, runtime.device
        width = _aligned(pages_for(runtime.max_context + MOST_FLIGHTS * runtime.window))
        columns = _aligned(lanes)
        self._device = device
        self._whole = torch.zeros((_WHOLE, columns), dtype=torch.int64, device=device)
        self._wide = torch.zeros((3, columns), dtype=torch.float64, device=device)
        self._narrow = torch.zeros((3, columns), dtype=torch.float32, device=device)
        self._pages = torch.zeros((lanes, width), dtype=torch.int64, device=device)
        self._given = torch.zeros((lanes, runtime.window - 1), dtype=torch.int64, device=device)
        self.counts = torch.zeros((lanes, vocab_rows), dtype=torch.int32, device=device)
        self._known: list[int] = []  # pages that are written, by lane

    def first(self, count: int) -> Lanes:
        """Views of the first lanes."""
        anchors, frontiers, slots, shifts = self._whole[:4, :count].unbind()
        return Lanes(
            anchors=anchors,
            frontiers=frontiers,
            slots=slots,
            shifts=shifts,
            whole=self._whole[4:, :count],
            wide=self._wide[:, :count],
            narrow=self._narrow[:, :count],
            pages=self._pages[:count],
            given=self._given[:count],
        )

    def settle(self) -> None:
        """Harmless contents for rounds of nobody: every lane at the start of a slot of its own."""
        self._whole.zero_()
        self._whole[2] = torch.arange(self._whole.shape[1], device=self._device)
        self._whole[6] = -1
        self._wide.zero_()
        self._narrow.fill_(1.0)
        self._pages.zero_()
        self._given.fill_(-2)

    def write(self, first: int, sequences: Items[Sequence]) -> None:
        """Let sequences that decode have the lanes from `first` on; lanes behind are nobody's."""
        if not sequences:
            return
        lanes = slice(first, first + len(sequences))
        self._whole[:, lanes] = upload(_whole(sequences), self._device)
        params = [s.sampling for s in sequences]
        wide = np.array([(p.temperature, p.top_p, p.min_p) for p in params], dtype=np.float64)
        self._wide[:, lanes] = upload(wide.T.copy(), self._device)
        penalties = [
            (p.presence_penalty, p.frequency_penalty, p.repetition_penalty) for p in params
        ]
        narrow = np.array(penalties, dtype=np.float32)
        self._narrow[:, lanes] = upload(narrow.T.copy(), self._device)
        width = max(len(s.pages) for s in sequences)
        table = np.zeros((len(sequences), width), dtype=np.int64)
        for row, s in zip(table, sequences, strict=True):
            row[: len(s.pages)] = s.pages
        self._pages[lanes, :width] = upload(table, self._device)
        self._known[first:] = [len(s.pages) for s in sequences]
        self._count(sequences)

    def keep(self, lanes: Items[int]) -> None:
        """Move these lanes, which ascend, to the front, in the order of the device's work."""
        index = upload(np.array(lanes, dtype=np.int64), self._device)
        count = len(lanes)
        for columns in (self._whole, self._wide, self._narrow):
            columns[:, :count] = columns[:, index]
        self._pages[:count] = self._pages[index]
        self._known = [self._known[lane] for lane in lanes]

    def add_pages(self, sequences: Items[Sequence]) -> None:
        """Write pages that sequences have taken since; they are those of the first lanes."""
        for lane, s in enumerate(sequences):
            known, total = self._known[lane], len(s.pages)
            if total > known:
                new = np.array(s.pages[known:], dtype=np.int64)
                self._pages[lane, known:total] = upload(new, self._device)
                self._known[lane] = total

    def give(self, drafts: Items[Items[int]], width: int) -> None:
        """Drafts for the first lanes, at most `width` each; an empty list leaves the lane alone.

        Behind the end of a list stands -1, which is no token.
        """
        table = np.full((len(drafts), width), -1, dtype=np.int64)
        for row, found in zip(table, drafts, strict=True):
            row[: len(found)] = found
            if not found:
                row[:] = -2
        self._given[: len(drafts), :width] = upload(table, self._device)

    def _count(self, sequences: Items[Sequence]) -> None:
        """Counts of what penalised sequences have generated."""
        penalised = [s for s in sequences if is_penalised(s.sampling)]
        if not penalised:
            return
        slots = np.array([s.state_slot for s in penalised], dtype=np.int64)
        self.counts.index_fill_(0, upload(slots, self._device), 0)
        rows = np.repeat(slots, [len(s.counts) for s in penalised])
        ids = [token for s in penalised for token in s.counts]
        times = [count for s in penalised for count in s.counts.values()]
        where, tokens, often = upload(np.array((rows, ids, times)), self._device)
        self.counts[where, tokens] = often.int()


def _aligned(count: int) -> int:
    """So many or a few more: kernels are compiled for rows that start at an alignment, or none."""
    return -(-count // _ALIGNED) * _ALIGNED


def _whole(sequences: Items[Sequence]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Columns of integers: anchor, frontier, slot, shift, top_k, seed, row of counts."""
    columns = [
        (
            s.tokens[-1],
            s.cached,
            s.state_slot,
            s.media.offset if s.media is not None else 0,
            s.sampling.top_k,
            (s.sampling.seed ^ _SIGNED) - _SIGNED,  # the same bits with a sign
            s.state_slot if is_penalised(s.sampling) else -1,
        )
        for s in sequences
    ]
    return np.array(columns, dtype=np.int64).T.copy()
