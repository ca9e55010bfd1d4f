"""Turn scheduled pieces of sequences into the ForwardBatch of one pass."""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from ninfer.models.forward_batch import ForwardBatch, MediaRows
from ninfer.ops.tensors import RaggedRows
from ninfer.runtime.config import PAGE_SIZE
from ninfer.runtime.media import positions_of, rows_of
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative.proposer import TargetRows

# Kernels are compiled for pointers with or without an alignment, so each field has the best one.
_ALIGNED: Final = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """`count` rows of a sequence from its committed frontier: tokens, then drafts.

    `logits` counts the rows, at its end, whose logits are wanted. `held` rows are not committed by
    the pass: how many of them count is decided after it.
    """

    sequence: Sequence
    count: int
    logits: int
    held: bool = False

    @property
    def tokens(self) -> list[int]:
        """The ids of its rows."""
        start = self.sequence.cached
        known = self.sequence.tokens[start : start + self.count]
        return known + self.sequence.drafts[: self.count - len(known)]


def build_batch(pieces: Items[Piece], device: torch.device) -> ForwardBatch:
    """The forward batch of these pieces, in order; each sequence may appear once."""
    tokens: list[int] = []
    slots: list[int] = []
    offsets = [0]
    logit_rows: list[int] = []
    for piece in pieces:
        sequence, start = piece.sequence, piece.sequence.cached
        span = range(start, start + piece.count)
        tokens.extend(piece.tokens)
        slots.extend(sequence.pages[t // PAGE_SIZE] * PAGE_SIZE + t % PAGE_SIZE for t in span)
        offsets.append(len(tokens))
        logit_rows.extend(range(len(tokens) - piece.logits, len(tokens)))

    table = _page_table(pieces)
    lengths = [p.sequence.cached + p.count for p in pieces]
    owned = [p.sequence.state_slot for p in pieces]
    flat = [page for row in table for page in row]
    held = [int(p.held) for p in pieces]
    places = _positions(pieces)
    bounds, lasts, pages, states, flags, ids, positions, stored, wanted = _packed(
        [offsets, lengths, flat, owned, held, tokens, places, slots, logit_rows], device
    )
    return ForwardBatch(
        tokens=ids,
        positions=positions.view(3, -1),
        rows=RaggedRows(
            offsets=bounds,
            kv_lengths=lasts,
            page_table=pages.view(len(pieces), -1),
            state_slots=states,
            held=flags.bool(),
            longest=max(p.count for p in pieces),
        ),
        kv_slots=stored,
        logit_rows=wanted,
        media=_media_rows(pieces, device),
    )


def _packed(fields: Items[list[int]], device: torch.device) -> list[torch.Tensor]:
    """An int64 tensor of each field, all in one transfer; each starts at a 128-byte border."""
    values: list[int] = []
    sizes = []
    for field in fields:
        spare = -len(field) % _ALIGNED
        values += field
        values += [0] * spare
        sizes += [len(field), spare]
    # By way of NumPy, whose arrays are made of lists in a fraction of the time.
    packed = torch.from_numpy(np.array(values, dtype=np.int64)).to(device)
    return list(packed.split_with_sizes(sizes)[::2])


def _positions(pieces: Items[Piece]) -> list[int]:
    """Positions [3, T] of all rows, one axis after the other."""
    if all(piece.sequence.media is None for piece in pieces):
        # Text alone has the same position on every axis.
        spans = ((p.sequence.cached, p.sequence.cached + p.count) for p in pieces)
        return [place for span in spans for place in range(*span)] * 3
    axes = [positions_of(p.sequence.media, p.sequence.cached, p.count) for p in pieces]
    found: list[int] = torch.cat(axes, dim=1).flatten().tolist()
    return found


def target_rows(pieces: Items[Piece], places: Items[int], alive: Items[bool]) -> list[TargetRows]:
    """What a pass did for each live sequence; `places` are the frontiers before it."""
    rows: list[TargetRows] = []
    first = 0
    for piece, start, lives in zip(pieces, places, alive, strict=True):
        sequence = piece.sequence
        if lives:
            kept = sequence.cached - start
            following = sequence.tokens[sequence.cached]
            rows.append(TargetRows(sequence, start, first, kept, following))
        first += piece.count
    return rows


def _media_rows(pieces: Items[Piece], device: torch.device) -> MediaRows | None:
    first = 0
    rows: list[torch.Tensor] = []
    embeddings: list[torch.Tensor] = []
    for piece in pieces:
        if piece.sequence.media is not None:
            inside, values = rows_of(piece.sequence.media, piece.sequence.cached, piece.count)
            if inside.numel():
                rows.append(inside + first)
                embeddings.append(values)
        first += piece.count
    if not rows:
        return None
    return MediaRows(torch.cat(rows).to(device), torch.cat(embeddings))


def _page_table(pieces: Items[Piece]) -> list[list[int]]:
    width = max(len(piece.sequence.pages) for piece in pieces)
    return [p.sequence.pages + [0] * (width - len(p.sequence.pages)) for p in pieces]
