"""Contract of the short causal convolution whose taps depend on the row, without carried state."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.dynamic_conv import reference
from ninfer.ops.tensors import RaggedRows

_DYNAMIC_CONV: Final = Route(reference.dynamic_conv)


def dynamic_conv(x: Tensor, base: Tensor, delta: Tensor, rows: RaggedRows) -> Tensor:
    """sum_j (base[j, c] + delta[t, j, c // (C / G)]) * x[t - j, c], rounded once.

    Tap 0 meets the row itself, tap j the j-th row before it. Rows before a sequence's first one
    count as zero. Each of G groups of neighbouring channels shares its deltas.
    Shapes: x [T, C], base [J, C], delta [T, J, G] -> [T, C] in the type of x.
    Raises ValueError for shapes that disagree and when G does not divide C.
    """
    op = "dynamic_conv"
    checks.activation(op, "x", x, 2)
    checks.activation(op, "base", base, 2)
    checks.shaped(op, "base", base, (base.shape[0], x.shape[1]), x)
    checks.activation(op, "delta", delta, 3)
    checks.shaped(op, "delta", delta, (x.shape[0], base.shape[0], delta.shape[2]), x)
    if delta.shape[2] == 0 or x.shape[1] % delta.shape[2]:
        seen, wanted = f"of {delta.shape[2]} groups", f"of groups that divide {x.shape[1]} channels"
        raise checks.wrong(op, "delta", seen, wanted)
    checks.ragged(op, rows, x)
    return _DYNAMIC_CONV.run(x, base, delta, rows)
