"""Triton kernel of the short convolution whose taps depend on the row."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["sequences"])
def convolve(
    x,
    x_stride,
    base,
    base_stride,
    delta,
    delta_row,
    delta_tap,
    delta_group,
    offsets,
    out,
    sequences,
    channels,
    width,  # channels of a group
    TAPS: tl.constexpr,
    SEQUENCES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """One row of some channels, summed tap by tap in float32; grid (parts, rows)."""
    t = tl.program_id(1).to(tl.int64)
    # The last offset that is not behind the row; empty sequences share theirs with the next.
    place = tl.arange(0, SEQUENCES)
    starts = tl.load(offsets + place, mask=place < sequences, other=0)
    first = tl.max(tl.where(starts <= t, starts, 0))
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    live = c < channels
    total = tl.zeros((COLUMNS,), tl.float32)
    for j in tl.static_range(TAPS):
        inside = c < tl.where(t - j >= first, channels, 0)
        at = delta + t * delta_row + j * delta_tap + (c // width) * delta_group
        tap = tl.load(base + j * base_stride + c, mask=live, other=0.0).to(tl.float32)
        tap += tl.load(at, mask=live, other=0.0).to(tl.float32)
        value = tl.load(x + (t - j) * x_stride + c, mask=inside, other=0.0).to(tl.float32)
        total += tap * value
    tl.store(out + t * channels + c, total, mask=live)
