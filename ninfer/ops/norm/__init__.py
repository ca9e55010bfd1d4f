"""Contract of the normalisations: RMS norms (plain, gated, with residual add) and L2 norm."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.norm import reference

_RMSNORM: Final = Route(reference.rmsnorm)
_GATED_RMSNORM: Final = Route(reference.gated_rmsnorm)
_ADD_RMSNORM: Final = Route(reference.add_rmsnorm)
_L2NORM: Final = Route(reference.l2norm)


def rmsnorm(x: Tensor, weight: Tensor, *, eps: float, unit_offset: bool) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * w over the last dim, with w = weight, or 1 + weight.

    Shapes: x [..., D], weight [D] -> [..., D] in the type of x. `unit_offset` picks 1 + weight.
    Domain: x^2 summed over D stays within float32. Raises ValueError for shapes that disagree.
    """
    checks.activation("rmsnorm", "x", x)
    checks.shaped("rmsnorm", "weight", weight, x.shape[-1:], x)
    return _RMSNORM.run(x, weight, eps=eps, unit_offset=unit_offset)


def gated_rmsnorm(x: Tensor, gate: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """rmsnorm(x, weight) * silu(gate), rounded once after the product.

    Shapes: x and gate [..., D] of one type, weight [D] -> [..., D] in that type.
    Raises ValueError for shapes or types that disagree.
    """
    checks.activation("gated_rmsnorm", "x", x)
    checks.twin("gated_rmsnorm", "gate", gate, x)
    checks.shaped("gated_rmsnorm", "weight", weight, x.shape[-1:], x)
    return _GATED_RMSNORM.run(x, gate, weight, eps=eps)


def add_rmsnorm(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, unit_offset: bool
) -> tuple[Tensor, Tensor]:
    """(rmsnorm(s), s) with s = x + residual, added in float32 and rounded to the type of x.

    The norm reads the rounded sum, so it equals `rmsnorm` of the second result.
    Shapes: x and residual [..., D] of one type, weight [D] -> two [..., D].
    Raises ValueError for shapes or types that disagree.
    """
    checks.activation("add_rmsnorm", "x", x)
    checks.twin("add_rmsnorm", "residual", residual, x)
    checks.shaped("add_rmsnorm", "weight", weight, x.shape[-1:], x)
    return _ADD_RMSNORM.run(x, residual, weight, eps=eps, unit_offset=unit_offset)


def l2norm(x: Tensor, *, eps: float) -> Tensor:
    """x / sqrt(sum(x^2) + eps) over the last dim.

    Shapes: x [..., D] -> [..., D] in the type of x. Raises ValueError for a non-float x.
    """
    checks.activation("l2norm", "x", x)
    return _L2NORM.run(x, eps=eps)
