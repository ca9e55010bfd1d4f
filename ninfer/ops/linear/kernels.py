"""Triton kernels of the matrix products: fragment order, row-major weights, and the sum of splits.

All put weights on the rows of the matrix instruction and tokens on its columns. A program owns
2 R weight rows in two halves (`fragment_order` says which), one tile of tokens and one split of the
columns, and goes through its columns from left to right: for each group an exact product of codes
and activations in float32, then one multiplication by the group's scale, added to the running sum.
Nothing in that order depends on the number of tokens or on the token's place in its tile.
"""

import triton
import triton.language as tl

from ninfer.ops.linear.unpack import (
    block_places,
    decode_e2m1,
    decode_e4m3,
    product_columns,
    unpack_bytes,
    unpack_nibbles,
    unpack_scales,
)

# What becomes of the sums of a program.
STORE = tl.constexpr(0)
ADD = tl.constexpr(1)
SWIGLU = tl.constexpr(2)
PARTIAL = tl.constexpr(3)
# How a row-major weight is stored.
DENSE = tl.constexpr(0)
FP8 = tl.constexpr(1)
NVFP4 = tl.constexpr(2)


@triton.jit
def dot(a, b, accumulator):
    """accumulator + a @ b, products exact and sums in float32."""
    return tl.dot(a, b, accumulator, input_precision="ieee")


@triton.jit
def _finish(
    out, residual, low, high, row_low, row_high, limit_low, limit_high, t, T, N, END: tl.constexpr
):
    """Store the sums [R, TN] of both halves, by token and row, with the epilogue END."""
    seen = (t < T)[None, :]
    place = t.to(tl.int64)[None, :] * N
    at_low, at_high = place + row_low[:, None], place + row_high[:, None]
    live_low = seen & (row_low < limit_low)[:, None]
    live_high = seen & (row_high < limit_high)[:, None]
    if END == SWIGLU:
        tl.store(out + at_low, low * tl.sigmoid(low) * high, mask=live_low)
    else:
        if END == ADD:
            low += tl.load(residual + at_low, mask=live_low, other=0.0).to(tl.float32)
            high += tl.load(residual + at_high, mask=live_high, other=0.0).to(tl.float32)
        tl.store(out + at_low, low, mask=live_low)
        tl.store(out + at_high, high, mask=live_high)


@triton.jit
def activations(x, t, T, stride, column, K, OPERAND: tl.constexpr, RAGGED: tl.constexpr):
    """x at tokens `t` [.., 1, TN] and columns `column` [.., n, 1]; 0 where t is T or more."""
    live = t < T
    if RAGGED:
        live = live & (column < K)
    at = x + t.to(tl.int64) * stride + column
    return tl.load(at, mask=live, other=0.0).to(OPERAND)


@triton.jit
def add_group(
    low,
    high,
    x,
    t,
    T,
    stride,
    column,
    K,
    codes,
    scales,
    r,
    BITS: tl.constexpr,
    PLAIN: tl.constexpr,
    OPERAND: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """The sums `low` and `high` [.., R, TN] of rows r and r + 8, with 64 columns more.

    `codes` and `scales` [.., R, 1] point to a block of each row's tile, `column` [.., 64, 1]
    ([.., 32, 1] for 8-bit codes) are its columns in product order; t is [.., 1, TN] and
    r [.., R, 1]. A leading dimension is for column slices that are summed apart.
    """
    zero = tl.zeros(low.shape, tl.float32)
    if BITS == 8:
        for c in tl.static_range(2):
            below, above = unpack_bytes(codes + 128 * c, r, PLAIN, OPERAND)
            b = activations(x, t, T, stride, column + 32 * c, K, OPERAND, RAGGED)
            s, z = unpack_scales(tl.load(scales + 8 * c))
            low += dot(below, b, zero) * s
            high += dot(above, b, zero) * z
    else:
        below, above = unpack_nibbles(codes, r, BITS, PLAIN, OPERAND)
        b = activations(x, t, T, stride, column, K, OPERAND, RAGGED)
        s, z = unpack_scales(tl.load(scales))
        low += dot(below, b, zero) * s
        high += dot(above, b, zero) * z
    return low, high


@triton.jit(do_not_specialize=["T", "groups", "share", "tiles"])
def fragment_product(
    x,
    words,
    residual,
    out,
    T,
    N,
    K,
    stride,
    groups,  # of 64 columns
    share,  # groups of a split
    tiles,  # of 16 rows
    tile_units,  # 16-byte units of a tile
    slice_units,  # 16-byte units of a slice
    BITS: tl.constexpr,
    SLICE: tl.constexpr,  # groups of a slice; 0: all of the row
    PAIRED: tl.constexpr,
    END: tl.constexpr,
    R: tl.constexpr,  # rows of one half: 8 for each tile
    TN: tl.constexpr,
    UNROLL: tl.constexpr,  # groups of one pass; divides groups and share
    STAGES: tl.constexpr,
    PLAIN: tl.constexpr,
    RAGGED: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """Products with a weight in fragment order; grid (token tiles, row blocks, splits)."""
    rr = tl.arange(0, R)
    t = tl.program_id(0) * TN + tl.arange(0, TN)
    tile = tl.program_id(1) * (R // 8) + rr // 8
    r = rr % 8
    # Rows behind the matrix read the last tile again and are not stored.
    rows = words + tl.minimum(tile, tiles - 1).to(tl.int64) * tile_units * 4  # [R]
    place = product_columns(tl.arange(0, 32 if BITS == 8 else 64))
    # Columns come in neighbouring pairs, which the compiler cannot see: it copies four bytes then.
    # The hint stays with this operation, so it cannot stand in a function of its own.
    place = tl.max_contiguous(tl.multiple_of(place, 2), 2)
    split = tl.program_id(2)
    low = tl.zeros((R, TN), tl.float32)
    high = tl.zeros((R, TN), tl.float32)
    for start in tl.range(
        split * share, tl.minimum((split + 1) * share, groups), UNROLL, num_stages=STAGES
    ):
        for u in tl.static_range(UNROLL):
            g = start + u
            codes, scales = block_places(rows, g, groups, slice_units, BITS, SLICE)
            low, high = add_group(
                low,
                high,
                x,
                t[None, :],
                T,
                stride,
                64 * g + place[:, None],
                K,
                codes[:, None],
                (scales + r)[:, None],
                r[:, None],
                BITS,
                PLAIN,
                OPERAND,
                RAGGED,
            )
    if PAIRED:
        row_low = 8 * tile + r
        row_high = N // 2 + row_low
        limit = N // 2
    else:
        row_low = 16 * tile + r
        row_high = row_low + 8
        limit = N
    if END == PARTIAL:
        out += split.to(tl.int64) * T * N
    width = N // 2 if END == SWIGLU else N
    _finish(out, residual, low, high, row_low, row_high, limit, N, t, T, width, END)


@triton.jit
def row_weights(
    weight,
    scales,
    row,
    first,
    stride,
    K,
    FORM: tl.constexpr,
    R: tl.constexpr,
    COLUMNS: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """Columns from `first` of rows `row` [R] of a row-major weight, without the row's scale."""
    at = row.to(tl.int64)[:, None] * stride
    if FORM == NVFP4:
        # Columns come in whole blocks of 64, so none can be missing.
        byte = tl.load(weight + at + first // 2 + tl.arange(0, COLUMNS // 2)[None, :]).to(tl.int32)
        codes = tl.join(decode_e2m1(byte & 15), decode_e2m1(byte >> 4)).reshape(R, COLUMNS)
        group = first // 16 + tl.arange(0, COLUMNS // 16)
        tile = (row // 128)[:, None] * (K // 64) + (group // 4)[None, :]
        lane = (row % 32 * 16 + row % 128 // 32 * 4)[:, None] + (group % 4)[None, :]
        scale = decode_e4m3(tl.load(scales + tile.to(tl.int64) * 512 + lane))
        wide = tl.broadcast_to(scale[:, :, None], (R, COLUMNS // 16, 16))
        # Six significant bits: exact in bf16 as well.
        return codes * wide.reshape(R, COLUMNS)
    else:
        column = first + tl.arange(0, COLUMNS)[None, :]
        live = tl.broadcast_to(column < K, (R, COLUMNS)) if RAGGED else None
        stored = tl.load(weight + at + column, mask=live, other=0 if RAGGED else None)
        return decode_e4m3(stored) if FORM == FP8 else stored


@triton.jit(do_not_specialize=["T", "share"])
def row_product(
    x,
    weight,
    scales,
    residual,
    out,
    T,
    N,
    K,
    stride,
    weight_stride,
    share,  # blocks of COLUMNS of a split
    divisor,
    FORM: tl.constexpr,
    PAIRED: tl.constexpr,
    END: tl.constexpr,
    R: tl.constexpr,
    TN: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    RAGGED: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """Products with a row-major weight [N, K]: dense, FP8 by row, NVFP4.

    With PAIRED rows the halves are the halves of the matrix. Grid as in `fragment_product`.
    """
    rr, cc = tl.arange(0, R), tl.arange(0, COLUMNS)
    t = tl.program_id(0) * TN + tl.arange(0, TN)
    if PAIRED:
        row_low = tl.program_id(1) * R + rr
        row_high = N // 2 + row_low
        limit = N // 2
    else:
        row_low = tl.program_id(1) * (2 * R) + rr
        row_high = row_low + R
        limit = N
    # Rows behind the matrix read its last row again and are not stored.
    read_low, read_high = tl.minimum(row_low, limit - 1), tl.minimum(row_high, N - 1)
    split = tl.program_id(2)
    low = tl.zeros((R, TN), tl.float32)
    high = tl.zeros((R, TN), tl.float32)
    blocks = tl.cdiv(K, COLUMNS)
    for block in tl.range(
        split * share, tl.minimum((split + 1) * share, blocks), num_stages=STAGES
    ):
        # So that the compiler sees that columns begin on a border of many bytes.
        start = block * COLUMNS
        b = activations(x, t[None, :], T, stride, (start + cc)[:, None], K, OPERAND, RAGGED)
        a = row_weights(weight, scales, read_low, start, weight_stride, K, FORM, R, COLUMNS, RAGGED)
        low = dot(a.to(OPERAND), b, low)
        a = row_weights(
            weight, scales, read_high, start, weight_stride, K, FORM, R, COLUMNS, RAGGED
        )
        high = dot(a.to(OPERAND), b, high)
    if FORM == FP8:
        low *= tl.load(scales + read_low).to(tl.float32)[:, None]
        high *= tl.load(scales + read_high).to(tl.float32)[:, None]
    if FORM == NVFP4:
        low /= divisor
        high /= divisor
    if END == PARTIAL:
        out += split.to(tl.int64) * T * N
    width = N // 2 if END == SWIGLU else N
    _finish(out, residual, low, high, row_low, row_high, limit, N, t, T, width, END)


@triton.jit(do_not_specialize=["T", "splits"])
def sum_splits(partial, residual, out, T, N, splits, END: tl.constexpr, BLOCK: tl.constexpr):
    """Add the splits [splits, T, N] in order, then the epilogue; grid (column blocks, tokens)."""
    width = N // 2 if END == SWIGLU else N
    t = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = column < width
    total = tl.zeros((BLOCK,), tl.float32)
    second = tl.zeros((BLOCK,), tl.float32)
    for split in range(splits):
        row = partial + (split * T + t) * N
        total += tl.load(row + column, mask=live, other=0.0)
        if END == SWIGLU:
            second += tl.load(row + width + column, mask=live, other=0.0)
    if END == SWIGLU:
        total = total * tl.sigmoid(total) * second
    if END == ADD:
        total += tl.load(residual + t * width + column, mask=live, other=0.0).to(tl.float32)
    tl.store(out + t * width + column, total, mask=live)
