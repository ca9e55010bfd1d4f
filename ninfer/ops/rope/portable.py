"""The rotary embedding by a Triton kernel."""

from math import log2
from typing import Final

import triton
from torch import Tensor

from ninfer.ops.launch import launch
from ninfer.ops.rope import kernels
from ninfer.ops.rope.yarn import magnitude, ramp
from ninfer.ops.rows import result_like

# Numbers of a program: few heads each, so that one token's heads fill several multiprocessors.
_NUMBERS: Final = 1024


def mrope(
    x: Tensor,
    positions: Tensor,
    *,
    theta: float,
    rotary_dim: int,
    factor: float = 1.0,
    native: int = 1,
) -> Tensor:
    """See the contract."""
    out = result_like("mrope", x)
    count, heads, width = x.shape
    if out.numel():
        low, high = (0.0, 1.0) if factor == 1 else ramp(theta, rotary_dim, native)
        held = max(1, _NUMBERS // triton.next_power_of_2(width))
        held = min(held, triton.next_power_of_2(heads))
        launch(
            kernels.rotate_heads,
            (count, -(-heads // held)),
            *(x, positions, out, heads, *x.stride()[:2], *positions.stride()),
            LOG2_THETA=log2(theta),
            HALF=rotary_dim // 2,
            D=width,
            HEADS=held,
            PAIRS=triton.next_power_of_2(rotary_dim // 2),
            REST=triton.next_power_of_2(max(width - rotary_dim, 1)),
            FACTOR=float(factor),
            LOW=low,
            HIGH=high,
            SCALE=magnitude(factor),
            num_warps=2,
        )
    return out.to(x.dtype)
