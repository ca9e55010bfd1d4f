"""Media of a running prompt: its positions, and the rows that stand for its placeholders."""

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.models.positions import mrope_positions
from ninfer.request import MediaRun


@dataclass(frozen=True, slots=True)
class PromptMedia:
    """The multimodal side of one prompt."""

    positions: Tensor  # [3, prompt tokens] int64, on the host
    offset: int  # a later token's position is its index plus this
    indices: Tensor  # [M] int64, tokens that stand for media, ascending, on the host
    embeddings: Tensor  # [M, hidden], on the device


def place_media(
    length: int,
    runs: Items[MediaRun],
    encoded: Mapping[int, Tensor] | Items[Tensor],
    start: int = 0,
) -> PromptMedia:
    """Lay encoded media out over a prompt of `length` tokens, of which `start` are cached.

    `encoded[i]` holds the rows [M_i, hidden] of media i; `runs` are in prompt order. Media that end
    before `start` need not be there.
    """
    positions, offset = mrope_positions(length, runs)
    ahead = [run for run in runs if run.start + run.length > start]
    rows = [encoded[r.media][r.first_row : r.first_row + r.length] for r in ahead]
    none = torch.zeros(0)
    return PromptMedia(
        positions=positions,
        offset=offset,
        indices=torch.cat(
            [none.long(), *(torch.arange(r.start, r.start + r.length) for r in ahead)]
        ),
        embeddings=torch.cat(rows) if rows else none,
    )


def positions_of(media: PromptMedia | None, start: int, count: int) -> Tensor:
    """Positions [3, count] int64 of tokens `start` to `start + count`, on the host."""
    if media is None:
        return torch.arange(start, start + count).expand(3, -1)
    known = media.positions[:, start : start + count]
    first = start + known.shape[1] + media.offset
    later = torch.arange(first, first + count - known.shape[1])
    return torch.cat([known, later.expand(3, -1)], dim=1)


def rows_of(media: PromptMedia, start: int, count: int) -> tuple[Tensor, Tensor]:
    """Rows [M] int64 within tokens `start` to `start + count`, and their embeddings [M, hidden]."""
    low, high = torch.searchsorted(media.indices, torch.tensor([start, start + count])).tolist()
    return media.indices[low:high] - start, media.embeddings[low:high]
