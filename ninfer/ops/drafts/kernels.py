"""Triton kernels of a round of drafts."""

import triton
import triton.language as tl

_NEVER = tl.constexpr(0x7FFFFFFF)


@triton.jit
def count_right(tokens, drafts, offsets, counts, newest, ROWS: tl.constexpr):
    """Tokens up to the first that was not foreseen; grid (sequences,)."""
    b = tl.program_id(0)
    start, stop = tl.load(offsets + b), tl.load(offsets + b + 1)
    rows = (stop - start).to(tl.int32)
    wrong = _NEVER
    for begin in range(0, rows, ROWS):
        i = begin + tl.arange(0, ROWS)
        live = i < rows
        token = tl.load(tokens + start + i, mask=live, other=0)
        draft = tl.load(drafts + start + i, mask=live, other=0)
        ends = live & ((token != draft) | (i == rows - 1))
        wrong = tl.minimum(wrong, tl.min(tl.where(ends, i, _NEVER)))
    count = tl.where(rows > 0, wrong + 1, 0).to(tl.int64)
    tl.store(counts + b, count)
    last = tl.load(tokens + start + count - 1, mask=rows > 0, other=-1)
    tl.store(newest + b, last)


@triton.jit
def lay_out_blocks(
    anchors,
    drafts,
    frontiers,
    page_table,
    pages,
    tokens,
    positions,
    slots,
    lengths,
    width,
    PAGE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Tokens, positions and cache rows of a block; grid (sequences,)."""
    b = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDTH)
    live = i < width
    draft = tl.load(drafts + b * (width - 1) + i - 1, mask=live & (i > 0), other=0)
    token = tl.maximum(tl.where(i == 0, tl.load(anchors + b), draft), 0)
    position = tl.load(frontiers + b) + i
    page = tl.load(page_table + b * pages + position // PAGE, mask=live, other=0)
    to = b * width + i
    tl.store(tokens + to, token, mask=live)
    tl.store(positions + to, position, mask=live)
    tl.store(slots + to, page * PAGE + position % PAGE, mask=live)
    tl.store(lengths + b, tl.load(frontiers + b) + width)
