"""Causal depthwise convolution in plain torch."""

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.exact import pointwise
from ninfer.ops.precision import wide
from ninfer.ops.tensors import ConvState, RaggedRows
from ninfer.ops.windows import spans


def causal_conv_silu(x: Tensor, weight: Tensor, state: ConvState, rows: RaggedRows) -> Tensor:
    """See the contract."""
    taps = weight.to(wide(x))
    out = x.new_empty(x.shape)
    past = state.inputs.shape[1]
    for span in spans("causal_conv_silu", rows, state.pending, state.window.shape[1]):
        slot, fresh = span.slot, x[span.start : span.stop]
        history = torch.cat((state.inputs[slot], state.window[slot, : span.kept], fresh))
        count = fresh.shape[0]
        seen = history[span.kept :].to(taps.dtype)  # [W - 1 + n, C]
        out[span.start : span.stop] = _convolve(seen, taps, count)
        committed = span.kept if span.held else span.kept + count
        state.inputs[slot] = history[committed : committed + past]
        if span.held:
            state.window[slot, :count] = fresh
    return out


def _convolve(history: Tensor, taps: Tensor, count: int) -> Tensor:
    total = history[:count] * taps[0]
    for j in range(1, taps.shape[0]):
        total.addcmul_(history[j : j + count], taps[j])
    return pointwise(functional.silu, total)
