"""Shapes of rounds, and the constants of each on the device."""

from dataclasses import dataclass, fields, replace
from typing import Any, Final

import torch
from torch import Tensor

from ninfer import ops

_ALIGNED: Final = 16


@dataclass(frozen=True, slots=True, order=True)
class RoundShape:
    """What one graph is for: so many sequences, so many rows of each, and who drafts."""

    count: int  # sequences
    width: int  # rows of a sequence: the anchor and its drafts
    given: bool = False  # the host has written drafts for some of them
    observes: bool = True  # the drafter takes in the rows now, not later

    @property
    def rows(self) -> int:
        """Token rows in all."""
        return self.count * self.width


@dataclass(frozen=True, slots=True)
class Layout:
    """Constants of a shape of B sequences of W rows; T = B * W."""

    shape: RoundShape
    offsets: Tensor  # [B + 1] int64
    single: Tensor  # [B + 1] int64, offsets of one row each
    rows: Tensor  # [T] int64, 0..T - 1
    lanes: Tensor  # [T or more] int64, lane of each row; a multiple of 16, so that rows are aligned
    drafts: Tensor  # [B * (W - 1)] int64, rows behind the anchors
    purposes: Tensor  # [T] int64
    held: Tensor | None  # [B] bool; None where nothing can be rejected
    ahead: Tensor  # [W, max(W - 1, 1)] bool, whether draft j stands in front of row i
    places: Tensor  # [W] int64, 0..W - 1
    nothing: Tensor  # [B, 1] int64, -1: what was fed behind the last row


def layout_of(shape: RoundShape, device: torch.device) -> Layout:
    """The constants of a shape on a device."""
    count, width, total = shape.count, shape.width, shape.rows
    rows, places = torch.arange(total), torch.arange(width)
    drafts = torch.arange(max(width - 1, 1))
    made = Layout(
        shape=shape,
        offsets=torch.arange(count + 1) * width,
        single=torch.arange(count + 1),
        rows=rows,
        lanes=torch.arange(-(-total // _ALIGNED) * _ALIGNED).clamp_max(total - 1) // width,
        drafts=rows[rows % width > 0],
        purposes=torch.full((total,), int(ops.Purpose.DECODE)),
        held=torch.ones(count, dtype=torch.bool) if width > 1 else None,
        ahead=drafts < places.unsqueeze(1),
        places=places,
        nothing=torch.full((count, 1), -1),
    )
    moved: dict[str, Any] = {
        part.name: value.to(device)
        for part in fields(made)
        if isinstance(value := getattr(made, part.name), Tensor)
    }
    return replace(made, **moved)


def new_output(shape: RoundShape, device: torch.device) -> Tensor:
    """What a round of this shape writes its tokens to."""
    return torch.zeros((shape.count, 2 * shape.width), dtype=torch.int64, device=device)
