"""Contract of the elementwise ops: SiLU and sigmoid products, and the residual add."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.elementwise import reference

_SILU_MUL: Final = Route(reference.silu_mul)
_SIGMOID_MUL: Final = Route(reference.sigmoid_mul)
_ADD: Final = Route(reference.add)


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up with silu(u) = u * sigmoid(u), rounded once.

    Shapes: two [...] of one shape and type -> the same. Raises ValueError when they differ.
    """
    checks.activation("silu_mul", "gate", gate)
    checks.twin("silu_mul", "up", up, gate)
    return _SILU_MUL.run(gate, up)


def sigmoid_mul(x: Tensor, gate: Tensor) -> Tensor:
    """x * sigmoid(gate), rounded once.

    Shapes: two [...] of one shape and type -> the same. Raises ValueError when they differ.
    """
    checks.activation("sigmoid_mul", "x", x)
    checks.twin("sigmoid_mul", "gate", gate, x)
    return _SIGMOID_MUL.run(x, gate)


def add(x: Tensor, y: Tensor) -> Tensor:
    """x + y in float32, rounded once.

    Shapes: two [...] of one shape and type -> the same. Raises ValueError when they differ.
    """
    checks.activation("add", "x", x)
    checks.twin("add", "y", y, x)
    return _ADD.run(x, y)
