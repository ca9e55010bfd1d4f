"""Triton kernels of the embedding lookup: rows in fragment order, and rows stored one by one."""

import triton
import triton.language as tl

from ninfer.ops.linear.unpack import (
    block_places,
    byte_code,
    decode_e4m3,
    nibble_code,
    unpack_scales,
)


@triton.jit(do_not_specialize=["groups", "width"])
def gather_fragments(
    ids,
    words,
    out,
    groups,  # blocks of 64 columns
    width,
    tile_units,  # 16-byte units of a tile
    slice_units,
    BITS: tl.constexpr,
    SLICE: tl.constexpr,
    BLOCKS: tl.constexpr,  # blocks of a program
):
    """Row ids[t] of a table in fragment order; grid (tokens, parts of a row)."""
    t = tl.program_id(0).to(tl.int64)
    row = tl.load(ids + t)
    h, r = (row % 16 // 8).to(tl.int32), (row % 8).to(tl.int32)
    g = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    # Blocks behind the row read its last one again and are not stored.
    read = tl.minimum(g, groups - 1)
    codes, scales = block_places(
        words + (row // 16) * tile_units * 4, read, groups, slice_units, BITS, SLICE
    )
    block, y = codes[:, None], tl.arange(0, 16)[None, :]
    j, half, p = y // 4, (y // 2) % 2, y % 2
    to = out + t * width
    if BITS == 8:
        for c in tl.static_range(2):
            low, high = unpack_scales(tl.load(scales + 8 * c + r))
            scale = tl.where(h == 0, low, high)[:, None]
            for e in tl.static_range(2):
                value = byte_code(block + 128 * c, r, j, half, e, h, p).to(tl.float32) * scale
                column = 64 * g[:, None] + 32 * c + 8 * j + 4 * half + 2 * e + p
                tl.store(to + column, value, mask=column < width)
    else:
        low, high = unpack_scales(tl.load(scales + r))
        scale = tl.where(h == 0, low, high)[:, None]
        for q in tl.static_range(4):
            code = nibble_code(block, r, j, 2 * half + q // 2, h + 2 * (q % 2), p, BITS)
            column = 64 * g[:, None] + 32 * half + 8 * j + 2 * q + p
            tl.store(to + column, code.to(tl.float32) * scale, mask=column < width)


@triton.jit(do_not_specialize=["width"])
def gather_rows(
    ids, table, scales, out, width, stride, IS_FP8: tl.constexpr, COLUMNS: tl.constexpr
):
    """Row ids[t] of a dense or FP8 table; grid (tokens, parts of a row)."""
    t = tl.program_id(0).to(tl.int64)
    row = tl.load(ids + t)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live = column < width
    value = tl.load(table + row * stride + column, mask=live, other=0)
    if IS_FP8:
        value = decode_e4m3(value) * tl.load(scales + row).to(tl.float32)
    tl.store(out + t * width + column, value.to(tl.float32), mask=live)
