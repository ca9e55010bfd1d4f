"""Contract of the causal depthwise convolution with carried state."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.conv import reference
from ninfer.ops.dispatch import Route
from ninfer.ops.tensors import RaggedRows

_CAUSAL_CONV_SILU: Final = Route(reference.causal_conv_silu)


def causal_conv_silu(x: Tensor, weight: Tensor, state: Tensor, rows: RaggedRows) -> Tensor:
    """silu(sum_j weight[j] * x[t - (W - 1) + j]) for each channel, j = W - 1 being the newest.

    Inputs before a sequence's first row come from its state slot, which holds the W - 1 inputs
    before it, oldest first. Effect: the state slots of sequences with rows then hold the last
    W - 1 inputs, bit for bit; cutting a sequence over several calls changes no result.
    Shapes: x [T, C], weight [W, C], state [S, W - 1, C] of the type of x -> [T, C].
    Raises ValueError for shapes or types that disagree and for W < 2.
    """
    checks.activation("causal_conv_silu", "x", x, 2)
    if weight.ndim != 2 or weight.shape[0] < 2:
        seen = f"of shape {tuple(weight.shape)}"
        raise checks.wrong("causal_conv_silu", "weight", seen, "of shape (W >= 2, C)")
    width, channels = weight.shape[0], x.shape[1]
    checks.shaped("causal_conv_silu", "weight", weight, (width, channels), x)
    if state.dtype is not x.dtype:
        raise checks.wrong("causal_conv_silu", "state", state.dtype, str(x.dtype))
    checks.state("causal_conv_silu", "state", state, (width - 1, channels), x)
    checks.ragged("causal_conv_silu", rows, x)
    return _CAUSAL_CONV_SILU.run(x, weight, state, rows)
