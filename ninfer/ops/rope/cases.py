"""Input cases of the rotary embedding."""

from functools import partial
from typing import Final

import torch
from torch import Tensor

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.rope import mrope


def _text(
    count: int, heads: int, dim: int, rotary: int, first: int, theta: float, inputs: Inputs
) -> Call:
    positions = torch.arange(first, first + count, device=inputs.device).expand(3, -1)
    x = inputs.normal(count, heads, dim)
    return _call(x, positions, theta, rotary)


def _call(
    x: Tensor,
    positions: Tensor,
    theta: float,
    rotary: int,
    factor: float = 1.0,
    native: int = 262_144,
) -> Call:
    return Call(
        {
            "x": x,
            "positions": positions,
            "theta": theta,
            "rotary_dim": rotary,
            "factor": factor,
            "native": native,
        }
    )


def _stretched(factor: float, native: int, dim: int, rotary: int, inputs: Inputs) -> Call:
    positions = inputs.integers(0, round(factor * native), 3, 6)
    return _call(inputs.normal(6, 2, dim), positions, 1e7, rotary, factor, native)


def _three_axes(inputs: Inputs) -> Call:
    x, positions = inputs.normal(9, 2, 64), inputs.integers(0, 4096, 3, 9)
    return _call(x, positions, 1e7, 32)


CASES: Final = (
    Case(mrope, "partial_256", partial(_text, 5, 24, 256, 64, 0, 1e7)),
    Case(mrope, "partial_late", partial(_text, 3, 4, 256, 64, 262_141, 1e7)),
    Case(mrope, "million", partial(_text, 3, 2, 128, 128, 999_997, 1e4)),
    Case(mrope, "whole_head", partial(_text, 7, 1, 16, 16, 11, 1e4)),
    Case(mrope, "one_pair", partial(_text, 1, 1, 6, 2, 5, 1e4)),
    Case(mrope, "no_rows", partial(_text, 0, 2, 64, 32, 0, 1e7)),
    Case(mrope, "three_axes", _three_axes),
    Case(mrope, "stretched", partial(_stretched, 2.0, 262_144, 256, 64)),
    Case(mrope, "stretched_far", partial(_stretched, 4.0, 4096, 16, 16)),
)
