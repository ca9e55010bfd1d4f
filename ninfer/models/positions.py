"""Positions of text and media on the three axes (time, height, width) of multimodal RoPE."""

from collections.abc import Iterable

import torch
from torch import Tensor

from ninfer.request import MediaRun


def mrope_positions(length: int, runs: Iterable[MediaRun]) -> tuple[Tensor, int]:
    """Positions [3, length] int64 of a prompt, and what to add to a later token's index.

    A text token takes the next value on all axes. A media run of grid (t, h, w) counts each axis
    from the next value on, and then the next value moves on by max(h, w), as in Qwen's multimodal
    RoPE. `runs` come in order and do not overlap.
    """
    parts: list[Tensor] = []
    token = position = 0
    for run in runs:
        assert token <= run.start and run.start + run.length <= length, run
        parts += [_text(run.start - token, position), _media(run, position + run.start - token)]
        position += run.start - token + max(run.grid[1:])
        token = run.start + run.length
    parts.append(_text(length - token, position))
    return torch.cat(parts, dim=1), position - token


def _text(count: int, first: int) -> Tensor:
    return torch.arange(first, first + count).expand(3, -1)


def _media(run: MediaRun, first: int) -> Tensor:
    axes = torch.meshgrid(*(torch.arange(n) for n in run.grid), indexing="ij")
    return torch.stack(axes).flatten(1) + first
