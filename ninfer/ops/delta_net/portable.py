"""The whole Gated DeltaNet by Triton kernels.

Rows outside of whole chunks take one launch, from the inputs of the convolution to the gated norm.
A call that can hold whole chunks adds the launches that these need, between one for the rows before
the chunks and one for the rows behind them.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.conv.portable import convolve
from ninfer.ops.delta_net import kernels
from ninfer.ops.delta_net.reference import L2_EPS
from ninfer.ops.gdn.kernels import BEFORE, BEHIND
from ninfer.ops.gdn.portable import (
    CHUNK,
    Parts,
    check_heads,
    gdn_gating,
    may_have_chunks,
    row_warps,
    tile_sizes,
    whole_chunks,
)
from ninfer.ops.kernel_types import next_power, supported
from ninfer.ops.launch import INTERPRETED, launch
from ninfer.ops.tensors import ConvState, DeltaRows, DeltaState, DeltaWeights, RaggedRows

_NORM_ROWS: Final = 16
_WIDEST_CONVOLUTION: Final = kernels.TAPS.value


def delta_net(
    x: DeltaRows,
    weights: DeltaWeights,
    conv: ConvState,
    delta: DeltaState,
    rows: RaggedRows,
    *,
    eps: float,
) -> Tensor:
    """See the contract."""
    return composed(x, weights, conv, delta, rows, eps=eps, single=launch_rows)


def composed(
    x: DeltaRows,
    weights: DeltaWeights,
    conv: ConvState,
    delta: DeltaState,
    rows: RaggedRows,
    *,
    eps: float,
    single: Callable[..., Any],
) -> Tensor:
    """The op with rows outside of whole chunks by `single`, a form of `launch_rows`."""
    check_heads("delta_net", x.key.shape[2], x.value.shape[2])
    if weights.convolution.shape[0] > _WIDEST_CONVOLUTION:
        raise UnsupportedError(
            f"delta_net: no Triton kernel for {weights.convolution.shape[0]} taps; "
            f"at most {_WIDEST_CONVOLUTION}"
        )
    x = _merged_heads(x)
    out = torch.empty(x.value.shape, dtype=x.value.dtype, device=x.value.device)
    if not out.numel():
        return out
    has_chunks = may_have_chunks(out.shape[0], rows)
    # The rows before the chunks change what the convolution of the chunks reads: it goes first.
    parts = _inputs_of_chunks(x, weights, conv, rows) if has_chunks else None
    single(x, weights, conv, delta, rows, out, eps, BEFORE.value)
    if parts is not None:
        core = torch.empty_like(out)
        whole_chunks(parts, delta, rows, core)
        _norm(core, x.gate, weights.norm, rows, out, eps)
        single(x, weights, conv, delta, rows, out, eps, BEHIND.value)
    return out


def counters(delta: DeltaState) -> Tensor:
    """The arrivals of a state, or new ones where its owner has none."""
    if delta.arrivals is not None:
        return delta.arrivals
    size = (delta.matrix.shape[0], delta.keys.shape[2])
    return torch.zeros(size, dtype=torch.int32, device=delta.matrix.device)


def _merged_heads(x: DeltaRows) -> DeltaRows:
    """The same rows with the heads of each row side by side, as projections give them."""

    def merged(part: Tensor) -> Tensor:
        return part if part.stride(1) == part.shape[2] or part.shape[1] == 1 else part.contiguous()

    return DeltaRows(merged(x.query), merged(x.key), merged(x.value), merged(x.gate), x.a, x.b)


def _inputs_of_chunks(
    x: DeltaRows, weights: DeltaWeights, conv: ConvState, rows: RaggedRows
) -> Parts:
    """Convolved and normed inputs of the delta rule for all rows; no state changes."""
    first = 0

    def convolved(part: Tensor, head: int | None) -> Tensor:
        nonlocal first
        out = torch.empty(part.shape, dtype=part.dtype, device=part.device)
        flat = out.flatten(1)
        taps = weights.convolution
        convolve(part.flatten(1), taps, conv, rows, flat, first=first, head=head, eps=L2_EPS)
        first += flat.shape[1]
        return out

    query = convolved(x.query, x.query.shape[2])
    key = convolved(x.key, x.key.shape[2])
    value = convolved(x.value, None)
    g, beta = gdn_gating(x.a, x.b, weights.a_log, weights.dt_bias)
    return Parts(query, key, value, g, beta)


def launch_rows(
    x: DeltaRows,
    weights: DeltaWeights,
    conv: ConvState,
    delta: DeltaState,
    rows: RaggedRows,
    out: Tensor,
    eps: float,
    part: int,
) -> None:
    """Start the kernel for the rows of one part."""
    heads, value = out.shape[1:]
    key_heads, key = x.key.shape[1:]
    arrivals = counters(delta) if key_heads < heads else delta.arrivals
    strides = (part.stride(0) for part in (x.query, x.key, x.value, x.gate, x.a, x.b))
    launch(
        kernels.delta_net_rows,
        (heads, rows.state_slots.shape[0]),
        *(x.query, x.key, x.value, x.gate, x.a, x.b, out),
        *(weights.convolution, weights.a_log, weights.dt_bias, weights.norm),
        *(conv.inputs, conv.window),
        *(delta.matrix, delta.keys, delta.values, delta.decays, delta.betas),
        *(arrivals, delta.pending),
        *(rows.offsets, rows.kv_lengths, rows.state_slots, rows.held),
        *strides,
        conv.window.shape[1],
        delta.window,
        part,
        key**-0.5,
        eps,
        L2_EPS,
        HEADS=heads,
        GROUP=heads // key_heads,
        **tile_sizes(key, value),
        W=weights.convolution.shape[0],
        STATE=supported("delta_net", delta.matrix.dtype),
        TYPE=supported("delta_net", out.dtype),
        PLAIN=INTERPRETED,
        num_warps=row_warps(key, value),
    )


def _norm(
    core: Tensor, gate: Tensor, norm: Tensor, rows: RaggedRows, out: Tensor, eps: float
) -> None:
    count, heads, value = out.shape
    sequences = rows.state_slots.shape[0]
    launch(
        kernels.norm_chunks,
        (count // CHUNK * (CHUNK // _NORM_ROWS), heads),
        *(core, gate, norm, out),
        *(rows.offsets, rows.kv_lengths, rows.held, sequences, gate.stride(0), eps),
        HEADS=heads,
        DV=value,
        V=next_power(value),
        ROWS=_NORM_ROWS,
        BLOCK_B=next_power(sequences),
        TYPE=supported("delta_net", out.dtype),
        PLAIN=INTERPRETED,
        num_warps=4,
    )
