"""Contract of the rotary position embedding with three position axes."""

from math import isfinite
from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.rope import reference

_MROPE: Final = Route(reference.mrope)


def mrope(
    x: Tensor,
    positions: Tensor,
    *,
    theta: float,
    rotary_dim: int,
    factor: float = 1.0,
    native: int = 1,
) -> Tensor:
    """Rotate the first `rotary_dim` dims of each head; the others pass through.

    With h = rotary_dim / 2, pair i = (x[i], x[i + h]) turns by the angle
    positions[i mod 3] * theta^(-2i / rotary_dim): split halves, interleaved axes (time, height,
    width) as in Qwen's multimodal RoPE. Equal axes give plain 1-D RoPE. A `factor` above 1
    stretches a context of `native` positions by YaRN: frequencies as `yarn.ramp` says, and all
    that rotates times `yarn.magnitude`.
    Shapes: x [T, H, D], positions [3, T] int64 -> [T, H, D] in the type of x. Positions up to a
    million keep float32 accuracy, as angles are float64. Raises ValueError for other shapes and
    for a rotary_dim that is odd, below 2 or above D, a factor below 1, or a native below 1.
    """
    checks.activation("mrope", "x", x, 3)
    checks.indices("mrope", "positions", positions, (3, x.shape[0]), x)
    if rotary_dim % 2 or not 2 <= rotary_dim <= x.shape[2]:
        raise checks.wrong("mrope", "rotary_dim", rotary_dim, f"even and in 2..{x.shape[2]}")
    if not (isfinite(factor) and factor >= 1):
        raise checks.wrong("mrope", "factor", factor, "1 or more")
    if native < 1:
        raise checks.wrong("mrope", "native", native, "1 or more")
    return _MROPE.run(
        x, positions, theta=theta, rotary_dim=rotary_dim, factor=factor, native=native
    )
