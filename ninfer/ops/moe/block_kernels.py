"""Triton functions for a block of an expert's rows: its products, and what is stored of them.

A program owns a block of rows for TN tokens. Of its columns each of PARTS warps takes a slice of
its own, left to right, and the slices are added in one order. Neither depends on the other tokens.

Arguments that go down unchanged travel in tuples:

    source  rows of activations: (pointer, rows, stride, columns)
    weight  (words, scales, row stride, groups, units of a tile, of a slice, divisor)
    HOW     of a weight: (FORM, SLICE, PARTS, RAGGED); FORM is that of a row-major weight (0 to 2)
            or the bits of a code in fragment order
    PAIRS   (TOP_K, the power of two that holds it, the one that holds all tokens or 0)
    SIZES   (R, TN, STAGES, PLAIN, OPERAND)
"""

import triton
import triton.language as tl

from ninfer.ops.linear.kernels import FP8, NVFP4, activations, add_group, dot, row_weights
from ninfer.ops.linear.unpack import block_places, product_columns

_FRAGMENTS = tl.constexpr(4)


@triton.jit
def _fragment_sums(source, t, weight, tile, HOW: tl.constexpr, SIZES: tl.constexpr):
    """Sums [R, TN] of rows r and r + 8 of the tiles `tile` [R], with r = 0..7 again and again."""
    x, rows, stride, columns = source[0], source[1], source[2], source[3]
    groups, tile_units, slice_units = weight[3], weight[4], weight[5]
    BITS: tl.constexpr = HOW[0]
    SLICE: tl.constexpr = HOW[1]
    PARTS: tl.constexpr = HOW[2]
    RAGGED: tl.constexpr = HOW[3]
    R: tl.constexpr = SIZES[0]
    TN: tl.constexpr = SIZES[1]
    STAGES: tl.constexpr = SIZES[2]
    PLAIN: tl.constexpr = SIZES[3]
    OPERAND: tl.constexpr = SIZES[4]
    r = tl.arange(0, R) % 8
    place = product_columns(tl.arange(0, 32 if BITS == 8 else 64))
    # Columns come in neighbouring pairs, which the compiler cannot see.
    place = tl.max_contiguous(tl.multiple_of(place, 2), 2)
    tiles = weight[0] + tile * tile_units * 4
    share = (groups + PARTS - 1) // PARTS
    if PARTS == 1:
        low = tl.zeros((R, TN), tl.float32)
        high = tl.zeros((R, TN), tl.float32)
        for g in tl.range(0, share, 1, num_stages=STAGES):
            at = tl.minimum(g, groups - 1)  # a tensor, where g is a number
            codes, scales = block_places(tiles, at, groups, slice_units, BITS, SLICE)
            low, high = add_group(
                low,
                high,
                x,
                t[None, :],
                rows,
                stride,
                64 * g + place[:, None],
                columns,
                codes[:, None],
                (scales + r)[:, None],
                r[:, None],
                BITS,
                PLAIN,
                OPERAND,
                RAGGED,
            )
        return low, high
    else:
        low = tl.zeros((PARTS, R, TN), tl.float32)
        high = tl.zeros((PARTS, R, TN), tl.float32)
        first = tl.arange(0, PARTS)[:, None] * share
        for step in tl.range(0, share, 1, num_stages=STAGES):
            g = first + step
            # Groups behind the row read its last codes again, with activations of zero.
            at = tl.minimum(g, groups - 1)
            codes, scales = block_places(tiles[None, :], at, groups, slice_units, BITS, SLICE)
            low, high = add_group(
                low,
                high,
                x,
                t[None, None, :],
                rows,
                stride,
                64 * g[:, :, None] + place[None, :, None],
                columns,
                codes[:, :, None],
                (scales + r[None, :])[:, :, None],
                r[None, :, None],
                BITS,
                PLAIN,
                OPERAND,
                RAGGED,
            )
        return tl.sum(low, 0), tl.sum(high, 0)


@triton.jit
def _row_sums(source, t, weight, row_low, row_high, HOW: tl.constexpr, SIZES: tl.constexpr):
    """Sums [R, TN] of two lists of rows [R] of a row-major weight."""
    x, rows, stride, columns = source[0], source[1], source[2], source[3]
    words, scales, row_stride = weight[0], weight[1], weight[2]
    FORM: tl.constexpr = HOW[0]
    RAGGED: tl.constexpr = HOW[3]
    R: tl.constexpr = SIZES[0]
    TN: tl.constexpr = SIZES[1]
    OPERAND: tl.constexpr = SIZES[4]
    low = tl.zeros((R, TN), tl.float32)
    high = tl.zeros((R, TN), tl.float32)
    for start in tl.range(0, columns, 64, num_stages=SIZES[2]):
        at = (start + tl.arange(0, 64))[:, None]
        b = activations(x, t[None, :], rows, stride, at, columns, OPERAND, RAGGED)
        a = row_weights(words, scales, row_low, start, row_stride, columns, FORM, R, 64, RAGGED)
        low = dot(a.to(OPERAND), b, low)
        a = row_weights(words, scales, row_high, start, row_stride, columns, FORM, R, 64, RAGGED)
        high = dot(a.to(OPERAND), b, high)
    if FORM == FP8:
        low *= tl.load(scales + row_low).to(tl.float32)[:, None]
        high *= tl.load(scales + row_high).to(tl.float32)[:, None]
    if FORM == NVFP4:
        low /= weight[6]
        high /= weight[6]
    return low, high


@triton.jit
def _gate_from_up(sums, R: tl.constexpr, TN: tl.constexpr):
    """Sums of tiles in turn of gate and of up rows [R, TN] as two of [R // 2, TN]."""
    gate, up = sums.reshape(R // 16, 2, 8, TN).permute(0, 2, 3, 1).split()
    return gate.reshape(R // 2, TN), up.reshape(R // 2, TN)


@triton.jit
def _store_gated(act, pair, live, row, width, gate, up):
    at = act + pair.to(tl.int64)[None, :] * width + row[:, None]
    tl.store(at, gate * tl.sigmoid(gate) * up, mask=live[None, :] & (row < width)[:, None])


@triton.jit
def gate_up_block(
    source, act, t, pair, expert, width, weight, HOW: tl.constexpr, SIZES: tl.constexpr
):
    """act[pair] = silu(gate(x[t])) * up(x[t]) for R of an expert's `width` inner rows."""
    R: tl.constexpr = SIZES[0]
    TN: tl.constexpr = SIZES[1]
    block, live = tl.program_id(0), t < source[1]
    # Rows behind the expert read its last ones again and are not stored.
    if HOW[0] < _FRAGMENTS:
        row = block * R + tl.arange(0, R)
        gate_row = expert * 2 * width + tl.minimum(row, width - 1)
        gate, up = _row_sums(source, t, weight, gate_row, gate_row + width, HOW, SIZES)
        _store_gated(act, pair, live, row, width, gate, up)
    else:
        # Tiles in turn of gate and of up rows: two neighbours make 16 inner rows.
        q = tl.arange(0, R) // 8
        inner = tl.minimum(block * (R // 16) + q // 2, width // 16 - 1)
        tile = expert * (width // 8) + inner + (q % 2) * (width // 16)
        low, high = _fragment_sums(source, t, weight, tile, HOW, SIZES)
        i = tl.arange(0, R // 2)
        row = block * R + 16 * (i // 8) + i % 8
        gate, up = _gate_from_up(low, R, TN)
        _store_gated(act, pair, live, row, width, gate, up)
        gate, up = _gate_from_up(high, R, TN)
        _store_gated(act, pair, live, row + 8, width, gate, up)


@triton.jit
def down_block(
    source, partial, pair, place, expert, D, weight, HOW: tl.constexpr, SIZES: tl.constexpr
):
    """partial[place] = down(act[pair]) for 2 R of an expert's D rows."""
    R: tl.constexpr = SIZES[0]
    block, i = tl.program_id(0), tl.arange(0, R)
    if HOW[0] < _FRAGMENTS:
        row_low = block * 2 * R + i
        row_high = row_low + R
        read_low = expert * D + tl.minimum(row_low, D - 1)
        read_high = expert * D + tl.minimum(row_high, D - 1)
        low, high = _row_sums(source, pair, weight, read_low, read_high, HOW, SIZES)
    else:
        tile = block * (R // 8) + i // 8
        row_low = 16 * tile + i % 8
        row_high = row_low + 8
        read = expert * (D // 16) + tl.minimum(tile, D // 16 - 1)
        low, high = _fragment_sums(source, pair, weight, read, HOW, SIZES)
    at, live = partial + place.to(tl.int64)[None, :] * D, (pair < source[1])[None, :]
    tl.store(at + row_low[:, None], low, mask=live & (row_low < D)[:, None])
    tl.store(at + row_high[:, None], high, mask=live & (row_high < D)[:, None])
