"""Contract of the rotary position embedding with three position axes."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.rope import reference

_MROPE: Final = Route(reference.mrope)


def mrope(x: Tensor, positions: Tensor, *, theta: float, rotary_dim: int) -> Tensor:
    """Rotate the first `rotary_dim` dims of each head; the others pass through.

    With h = rotary_dim / 2, pair i = (x[i], x[i + h]) turns by the angle
    positions[i mod 3] * theta^(-2i / rotary_dim): split halves, interleaved axes (time, height,
    width) as in Qwen's multimodal RoPE. Equal axes give plain 1-D RoPE.
    Shapes: x [T, H, D], positions [3, T] int64 -> [T, H, D] in the type of x. Positions up to a
    million keep float32 accuracy, as angles are float64. Raises ValueError for other shapes and
    for a rotary_dim that is odd, below 2 or above D.
    """
    checks.activation("mrope", "x", x, 3)
    checks.indices("mrope", "positions", positions, (3, x.shape[0]), x)
    if rotary_dim % 2 or not 2 <= rotary_dim <= x.shape[2]:
        raise checks.wrong("mrope", "rotary_dim", rotary_dim, f"even and in 2..{x.shape[2]}")
    return _MROPE.run(x, positions, theta=theta, rotary_dim=rotary_dim)
