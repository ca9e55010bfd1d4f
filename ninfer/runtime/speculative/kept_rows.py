"""The rows of a target pass that count: a forward batch without rejected drafts."""

from collections.abc import Sequence as Items
from itertools import accumulate

import torch
from torch import Tensor

from ninfer.models.forward_batch import ForwardBatch, MediaRows
from ninfer.ops.tensors import RaggedRows
from ninfer.runtime.speculative.proposer import TargetRows


def kept_rows(rows: Items[TargetRows], batch: ForwardBatch) -> tuple[ForwardBatch, Tensor]:
    """The batch of the kept rows, N >= 1 in all, and their places [N] among the T of the pass.

    Sequences are in row order, each with kept >= 1.
    """
    device = batch.tokens.device
    first_rows = [r.first_row for r in rows]
    assert first_rows == sorted(first_rows) and all(r.kept >= 1 for r in rows)
    places = torch.cat([torch.arange(r.first_row, r.first_row + r.kept) for r in rows]).to(device)
    offsets = torch.tensor([0, *accumulate(r.kept for r in rows)], device=device)
    first = torch.tensor(first_rows, device=device)
    owners = torch.searchsorted(batch.rows.offsets, first, right=True) - 1
    kept = ForwardBatch(
        tokens=batch.tokens[places],
        positions=batch.positions[:, places],
        rows=RaggedRows(
            offsets=offsets,
            kv_lengths=torch.tensor([r.start + r.kept for r in rows], device=device),
            page_table=batch.rows.page_table[owners],
            state_slots=batch.rows.state_slots[owners],
        ),
        kv_slots=batch.kv_slots[places],
        logit_rows=places.new_empty(0),
        media=_kept_media(batch.media, places),
    )
    return kept, places


def _kept_media(media: MediaRows | None, places: Tensor) -> MediaRows | None:
    if media is None:
        return None
    inside = torch.isin(media.rows, places)
    return MediaRows(torch.searchsorted(places, media.rows[inside]), media.embeddings[inside])
