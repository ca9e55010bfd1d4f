"""Contract of the matrix products with dense or packed weights."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.linear import reference
from ninfer.ops.tensors import Weight

_LINEAR: Final = Route(reference.linear)
_LINEAR_ADD: Final = Route(reference.linear_add)
_LINEAR_SWIGLU: Final = Route(reference.linear_swiglu)


def linear(x: Tensor, weight: Weight) -> Tensor:
    """x @ weight^T, accumulated in float32, rounded once.

    Shapes: x [T, K], weight [N, K] dense or packed -> [T, N] in the type of x. A packed weight is
    decoded exactly, in row blocks of bounded size. Raises ValueError for shapes that disagree.
    """
    checks.activation("linear", "x", x, 2)
    checks.weight_matrix("linear", "weight", weight, x, columns=x.shape[1])
    return _LINEAR.run(x, weight)


def linear_add(x: Tensor, weight: Weight, residual: Tensor) -> Tensor:
    """residual + x @ weight^T, rounded once after the sum.

    Shapes: x [T, K], weight [N, K], residual [T, N] of the type of x -> [T, N]; `residual` is
    unchanged. Raises ValueError for shapes or types that disagree.
    """
    checks.activation("linear_add", "x", x, 2)
    checks.weight_matrix("linear_add", "weight", weight, x, columns=x.shape[1])
    if residual.dtype is not x.dtype:
        raise checks.wrong("linear_add", "residual", residual.dtype, str(x.dtype))
    checks.shaped("linear_add", "residual", residual, (x.shape[0], weight.shape[0]), x)
    return _LINEAR_ADD.run(x, weight, residual)


def linear_swiglu(x: Tensor, gate_up: Weight) -> Tensor:
    """silu(x @ gate^T) * (x @ up^T), rounded once after the product.

    Shapes: x [T, K], gate_up [2I, K] with the gate rows first -> [T, I] in the type of x.
    Raises ValueError for shapes that disagree and for an odd row count.
    """
    checks.activation("linear_swiglu", "x", x, 2)
    checks.weight_matrix("linear_swiglu", "gate_up", gate_up, x, columns=x.shape[1])
    if gate_up.shape[0] % 2:
        seen = f"of {gate_up.shape[0]} rows"
        raise checks.wrong("linear_swiglu", "gate_up", seen, "of an even row count")
    return _LINEAR_SWIGLU.run(x, gate_up)
