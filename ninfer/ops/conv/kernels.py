"""Triton kernels of the causal convolution: outputs of all rows, then the effect on state slots."""

import triton
import triton.language as tl

from ninfer.ops.kernel_math import only_if, rounded, silu


@triton.jit
def past_row(inputs, window, x, at, place, kept, channel, x_channel, live, PAST: tl.constexpr):
    """Row `place` of a sequence's committed inputs, kept rows and new rows, all in one line.

    `at` are the offsets of its slot in `inputs` and in `window`, of its first new row in `x`, and
    the strides of rows in state and x. Places before the first row give 0.
    """
    slot_inputs, slot_window, first, C, stride = at
    old = inputs + slot_inputs + place * C + channel
    value = tl.load(old, mask=only_if(live, (place >= 0) & (place < PAST)), other=0.0).to(
        tl.float32
    )
    held = place - PAST
    near = window + slot_window + held * C + channel
    value += tl.load(near, mask=only_if(live, (held >= 0) & (held < kept)), other=0.0).to(
        tl.float32
    )
    new = held - kept
    here = x + first + new * stride + x_channel
    return value + tl.load(here, mask=only_if(live, new >= 0), other=0.0).to(tl.float32)


@triton.jit
def owner_of(t, offsets, B, BLOCK_B: tl.constexpr):
    """The sequences [R] that rows t [R] belong to; the last one for rows behind all of them."""
    b = tl.arange(0, BLOCK_B)
    ends = tl.load(offsets + 1 + b, mask=b < B - 1, other=0x7FFFFFFFFFFFFFFF)
    return tl.sum((ends[None, :] <= t[:, None]).to(tl.int32), axis=1)


@triton.jit(do_not_specialize=["T", "B", "H"])
def convolve(
    x,  # [T, channels of this launch]
    weight,
    inputs,
    window,
    pending,
    offsets,
    slots,
    out,  # [T, channels of this launch], contiguous
    T,
    B,
    C,  # channels of the state
    first_channel,  # where this launch's channels begin in state and weight
    channels,
    stride,
    H,
    eps,
    W: tl.constexpr,
    NORM: tl.constexpr,  # L2 norm of each block of WIDTH channels
    WIDTH: tl.constexpr,  # channels of a program
    COLUMNS: tl.constexpr,  # the power of two that holds them
    ROWS: tl.constexpr,
    BLOCK_B: tl.constexpr,
    TYPE: tl.constexpr,
    PLAIN: tl.constexpr,
):
    """Outputs of all rows, states as they are; grid (row blocks, channel blocks)."""
    t = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = t < T
    b = owner_of(tl.minimum(t, T - 1), offsets, B, BLOCK_B)
    slot = tl.load(slots + b)
    kept = tl.load(pending + slot)[:, None]
    start = tl.load(offsets + b)
    lane = tl.arange(0, COLUMNS)
    column = tl.program_id(1) * WIDTH + lane
    live = (lane < WIDTH) & (column < channels)
    channel = first_channel + column[None, :]
    PAST: tl.constexpr = W - 1
    at = (
        (slot * PAST * C)[:, None],
        (slot * H * C)[:, None],
        (start * stride)[:, None],
        C,
        stride,
    )
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for j in tl.static_range(W):
        place = (t - start)[:, None] + kept + j
        mask = inside[:, None] & live[None, :]
        value = past_row(inputs, window, x, at, place, kept, channel, column[None, :], mask, PAST)
        tap = tl.load(weight + j * C + first_channel + column, mask=live, other=0.0)
        total += value * tap.to(tl.float32)[None, :]
    total = rounded(silu(total), TYPE, PLAIN)
    if NORM:
        length = tl.sum(total * total, axis=1)
        total = rounded(total * tl.rsqrt(length + eps)[:, None], TYPE, PLAIN)
    place = out + t[:, None] * channels + column[None, :]
    tl.store(place, total, mask=inside[:, None] & live[None, :])


@triton.jit(do_not_specialize=["H"])
def commit(
    x,
    inputs,
    window,
    pending,
    offsets,
    slots,
    held,
    C,
    stride,
    H,
    PAST: tl.constexpr,
    BLOCK_PAST: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Advance committed inputs, and put held rows into windows; grid (sequences, channels)."""
    b = tl.program_id(0)
    start, stop = tl.load(offsets + b), tl.load(offsets + b + 1)
    count = stop - start
    # A sequence without rows keeps what it owes.
    if count == 0:
        return
    slot = tl.load(slots + b)
    kept = tl.load(pending + slot)
    stays = False
    if held is not None:
        stays = tl.load(held + b) != 0
    done = tl.where(stays, kept, kept + count)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live = channel < C
    j = tl.arange(0, BLOCK_PAST)[:, None]
    mask = live[None, :] & (j < PAST)
    at = (slot * PAST * C, slot * H * C, start * stride, C, stride)
    across = channel[None, :]
    value = past_row(inputs, window, x, at, done + j, kept, across, across, mask, PAST)
    # Everything is read before anything is overwritten.
    tl.debug_barrier()
    tl.store(inputs + (slot * PAST + j) * C + channel[None, :], value, mask=mask)
    if stays:
        for r in range(tl.minimum(count, H)):
            row = tl.load(x + (start + r) * stride + channel, mask=live, other=0.0)
            tl.store(window + (slot * H + r) * C + channel, row, mask=live)
