"""Dynamic grouped convolution in plain torch."""

from torch import Tensor

from ninfer.ops.precision import wide
from ninfer.ops.tensors import RaggedRows


def dynamic_conv(x: Tensor, base: Tensor, delta: Tensor, rows: RaggedRows) -> Tensor:
    """See the contract."""
    dtype = wide(x)
    inputs = x.to(dtype)
    width = x.shape[1] // delta.shape[2]
    taps = delta.to(dtype).repeat_interleave(width, -1) + base.to(dtype)  # [T, J, C]
    total = taps[:, 0] * inputs
    for start, stop in rows.spans():
        for j in range(1, min(base.shape[0], stop - start)):
            total[start + j : stop] += taps[start + j : stop, j] * inputs[start : stop - j]
    return total.to(x.dtype)
