"""The short convolution with taps of its own for each row, by a Triton kernel."""

from typing import Final

import torch
import triton
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.dynamic_conv import kernels
from ninfer.ops.launch import INTERPRETED, launch
from ninfer.ops.tensors import RaggedRows

_TYPES: Final = (torch.bfloat16, torch.float16, torch.float32)
_COLUMNS: Final = 1024


def dynamic_conv(x: Tensor, base: Tensor, delta: Tensor, rows: RaggedRows) -> Tensor:
    """See the contract."""
    for part in (x, base, delta):
        if part.dtype not in _TYPES:
            raise UnsupportedError(f"dynamic_conv: no Triton kernel for {part.dtype}; use bf16")
    # The interpreter cuts float32 down to bf16 where a card rounds.
    made = torch.float32 if INTERPRETED and x.dtype is torch.bfloat16 else x.dtype
    out = torch.empty(x.shape, dtype=made, device=x.device)
    if out.numel():
        count, channels = x.shape
        sequences = rows.offsets.shape[0] - 1
        columns = min(triton.next_power_of_2(channels), _COLUMNS)
        launch(
            kernels.convolve,
            (-(-channels // columns), count),
            *(x, x.stride(0), base, base.stride(0), delta, *delta.stride(), rows.offsets),
            *(out, sequences, channels, channels // delta.shape[2]),
            TAPS=base.shape[0],
            SEQUENCES=triton.next_power_of_2(sequences),
            COLUMNS=columns,
            num_warps=4,
        )
    return out.to(x.dtype)
