"""Contract of the causal depthwise convolution with carried state."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.conv import reference
from ninfer.ops.dispatch import Route
from ninfer.ops.tensors import ConvState, RaggedRows

_CAUSAL_CONV_SILU: Final = Route(reference.causal_conv_silu)


def causal_conv_silu(x: Tensor, weight: Tensor, state: ConvState, rows: RaggedRows) -> Tensor:
    """silu(sum_j weight[j] * x[t - (W - 1) + j]) for each channel, j = W - 1 being the newest.

    Inputs before a sequence's first row come from its state slot: the W - 1 committed inputs,
    oldest first, and behind them the pending rows of its window. Effect on the state slots of
    sequences with rows: pending rows are committed; then the new ones too, or, of a held sequence,
    they are kept in the window from row 0 on. Cutting a sequence over several calls, held or not,
    changes no bit. `pending` itself is only read.
    Shapes: x [T, C], weight [W, C], inputs [S, W - 1, C] and window [S, H, C] of the type of x
    -> [T, C]. Raises ValueError for shapes or types that disagree, for W < 2 and H > 63, and for
    held sequences of more than H rows.
    """
    op = "causal_conv_silu"
    checks.activation(op, "x", x, 2)
    if weight.ndim != 2 or weight.shape[0] < 2:
        seen = f"of shape {tuple(weight.shape)}"
        raise checks.wrong(op, "weight", seen, "of shape (W >= 2, C)")
    width, channels = weight.shape[0], x.shape[1]
    checks.shaped(op, "weight", weight, (width, channels), x)
    checks.conv_state(op, state, (width, channels), x)
    checks.ragged(op, rows, x)
    return _CAUSAL_CONV_SILU.run(x, weight, state, rows)
