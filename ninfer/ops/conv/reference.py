"""Causal depthwise convolution in plain torch."""

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.exact import pointwise
from ninfer.ops.precision import wide
from ninfer.ops.tensors import RaggedRows


def causal_conv_silu(x: Tensor, weight: Tensor, state: Tensor, rows: RaggedRows) -> Tensor:
    """See the contract."""
    taps = weight.to(wide(x))
    out = x.new_empty(x.shape)
    slots: list[int] = rows.state_slots.tolist()
    for slot, (start, stop) in zip(slots, rows.spans(), strict=True):
        if start == stop:
            continue
        window = torch.cat((state[slot], x[start:stop]))  # [W - 1 + n, C]
        out[start:stop] = _convolve(window.to(taps.dtype), taps, stop - start)
        state[slot] = window[stop - start :]
    return out


def _convolve(window: Tensor, taps: Tensor, count: int) -> Tensor:
    total = window[:count] * taps[0]
    for j in range(1, taps.shape[0]):
        total.addcmul_(window[j : j + count], taps[j])
    return pointwise(functional.silu, total)
