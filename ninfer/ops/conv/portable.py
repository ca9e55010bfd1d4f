"""The causal convolution by Triton kernels."""

from typing import Final

import torch
from torch import Tensor

from ninfer.ops.conv import kernels
from ninfer.ops.kernel_types import next_power, supported
from ninfer.ops.launch import INTERPRETED, launch
from ninfer.ops.tensors import ConvState, RaggedRows

_COLUMNS: Final = 128
_ROWS: Final = 8


def causal_conv_silu(x: Tensor, weight: Tensor, state: ConvState, rows: RaggedRows) -> Tensor:
    """See the contract. Held rows behind the end of their window are dropped."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        convolve(x, weight, state, rows, out)
        commit(x, state, rows)
    return out


def convolve(
    x: Tensor,
    weight: Tensor,
    state: ConvState,
    rows: RaggedRows,
    out: Tensor,
    *,
    first: int = 0,
    head: int | None = None,
    eps: float = 0.0,
) -> None:
    """Fill out [T, c] for x [T, c], the channels of `state` from `first` on; changes no state.

    With `head`, each block of so many channels is divided by its length, as `l2norm` does it.
    """
    count, channels = x.shape
    width = head or _COLUMNS
    launch(
        kernels.convolve,
        (-(-count // _ROWS), -(-channels // width)),
        x,
        weight,
        state.inputs,
        state.window,
        state.pending,
        rows.offsets,
        rows.state_slots,
        out,
        count,
        rows.state_slots.shape[0],
        state.inputs.shape[2],
        first,
        channels,
        x.stride(0),
        state.window.shape[1],
        eps,
        W=weight.shape[0],
        NORM=head is not None,
        WIDTH=width,
        COLUMNS=next_power(width),
        ROWS=_ROWS,
        BLOCK_B=next_power(rows.state_slots.shape[0]),
        TYPE=supported("causal_conv_silu", x.dtype),
        PLAIN=INTERPRETED,
        num_warps=4,
    )


def commit(x: Tensor, state: ConvState, rows: RaggedRows) -> None:
    """The effect of `causal_conv_silu` on the state."""
    past, channels = state.inputs.shape[1:]
    launch(
        kernels.commit,
        (rows.state_slots.shape[0], -(-channels // _COLUMNS)),
        x,
        state.inputs,
        state.window,
        state.pending,
        rows.offsets,
        rows.state_slots,
        rows.held,
        channels,
        x.stride(0),
        state.window.shape[1],
        PAST=past,
        BLOCK_PAST=next_power(past),
        COLUMNS=_COLUMNS,
        num_warps=4,
    )
