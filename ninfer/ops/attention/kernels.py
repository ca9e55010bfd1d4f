"""Triton kernels of attention over paged keys: splits of the keys summed apart, and whole rows.

The keys of a sequence are cut into splits of SPLIT positions, a fixed length. Both routes start
each split from nothing, go through it tile by tile, and add splits up from left to right: one keeps
the splits in memory and adds them in a second kernel, the other keeps one running sum. So a row has
the same bits by either, with any rows beside it. Lengths, offsets and pages are read on the device.

A BLOCK is rows that see each other in both directions, with keys of their own behind the cached
context; they belong to the split that the context ends in. Without it rows see keys up to their
own, all of which are cached.
"""

import triton
import triton.language as tl

from ninfer.ops.attention.tiles import DIRECT, attend_tile, fold, load_queries, no_sums


@triton.jit
def _sequences(
    offsets,
    lengths,
    window,
    B,
    GROUP: tl.constexpr,
    R: tl.constexpr,
    SPLIT: tl.constexpr,
    BN: tl.constexpr,
    BB: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row tiles and splits of each of BB sequences."""
    b = tl.arange(0, BB)
    start = tl.load(offsets + b, mask=b < B, other=0).to(tl.int32)
    stop = tl.load(offsets + b + 1, mask=b < B, other=0).to(tl.int32)
    length = tl.load(lengths + b, mask=b < B, other=0).to(tl.int32)
    count = stop - start
    context = length - count
    last = context if BLOCK else length - 1
    splits = last // SPLIT + 1 - _first_key(context, window, BN) // SPLIT
    return (count * GROUP + R - 1) // R, tl.where(count > 0, splits, 0)


@triton.jit
def _reach(context, window):
    """The first key that a sequence's first row sees."""
    return tl.where(window > 0, tl.maximum(context - window + 1, 0), 0)


@triton.jit
def _first_key(context, window, BN: tl.constexpr):
    """The tile border at or before the first key that is seen."""
    return _reach(context, window) // BN * BN


@triton.jit
def _rows(start, count, length, tile, head, GROUP: tl.constexpr, R: tl.constexpr):
    """Token, query head, position and whether it exists, of each row of a tile."""
    i = tile * R + tl.arange(0, R)
    live = i < count * GROUP
    token = tl.minimum(i // GROUP, count - 1)
    return start + token, head * GROUP + i % GROUP, length - count + token, live


@triton.jit
def _split(
    q,
    place,  # [R] position of each row
    cache,
    block,  # keys, values and their row strides
    table,
    head,
    low,  # first key that is read
    begin,
    end,  # cached keys of this split
    full,  # keys before it are seen by all rows
    rows,  # [start, count, context] of the sequence
    ends_here,  # whether the block belongs to this split
    window,
    scale,
    R: tl.constexpr,
    SPLIT: tl.constexpr,
    BN: tl.constexpr,
    DIM: tl.constexpr,
    W: tl.constexpr,
    CHUNKS: tl.constexpr,
    HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    SCALED: tl.constexpr,
    SCALES: tl.constexpr,
    PACKED: tl.constexpr,
    PARTS: tl.constexpr,
    FORM: tl.constexpr,
    OPERAND: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Top, weight [R] and sums of one split."""
    keys, values, key_scales, value_scales = cache
    top = tl.full((R,), float("-inf"), tl.float32)
    weight = tl.zeros((64, R), tl.float32)
    sums = no_sums(W, R, CHUNKS)
    n = tl.arange(0, BN)
    # A tile in one page needs one number of the table. The numbers of the split are read before the
    # loop: a load that waits for another load in it would be requested a tile later.
    WHOLE: tl.constexpr = PAGE % BN == 0 and SPLIT % PAGE == 0
    PAGES: tl.constexpr = SPLIT // PAGE if WHOLE else 1
    first_page = begin // SPLIT * PAGES
    page_of = tl.arange(0, PAGES)
    WORDS: tl.constexpr = DIM // PARTS
    if WHOLE:
        reached = (first_page + page_of) * PAGE < end
        reached = reached & ((first_page + page_of + 1) * PAGE > begin)
        pages = tl.load(table + first_page + page_of, mask=reached, other=0).to(tl.int32)
    no_row = tl.zeros((BN, R), tl.int1)
    for at in tl.range(begin, full, BN, num_stages=STAGES):
        if WHOLE:
            page = tl.sum(tl.where(page_of == at // PAGE - first_page, pages, 0), 0)
            row = page.to(tl.int64) * PAGE + (at % PAGE + n)
        else:
            row = tl.load(table + (at + n) // PAGE) * PAGE + (at + n) % PAGE
        row = row * HEADS + head
        top, weight, sums = attend_tile(
            q, top, weight, sums, keys, values, key_scales, value_scales,
            row * WORDS, row * DIM, row * SCALES, n >= 0, no_row, scale,
            DIM, W, CHUNKS, SCALED, PACKED, PARTS, FORM, OPERAND, False,
        )  # fmt: skip
    for at in tl.range(tl.maximum(begin, full), end, BN, num_stages=1):
        key = at + n
        live = (key < end) & (key >= low)
        visible = live[:, None]
        if BLOCK:
            visible = visible & ((window <= 0) | (place[None, :] - key[:, None] < window))
        else:
            visible = visible & (key[:, None] <= place[None, :])
        if WHOLE:
            page = tl.sum(tl.where(page_of == at // PAGE - first_page, pages, 0), 0)
            row = page.to(tl.int64) * PAGE + (at % PAGE + n)
        else:
            row = tl.load(table + key // PAGE, mask=live, other=0) * PAGE + key % PAGE
        row = row * HEADS + head
        top, weight, sums = attend_tile(
            q, top, weight, sums, keys, values, key_scales, value_scales,
            row * WORDS, row * DIM, row * SCALES, live, visible, scale,
            DIM, W, CHUNKS, SCALED, PACKED, PARTS, FORM, OPERAND, True,
        )  # fmt: skip
    if BLOCK:
        block_keys, block_values, key_row, key_head, value_row, value_head = block
        start, count, context = rows
        reach = tl.where(ends_here, count, 0)
        for at in tl.range(0, reach, BN, num_stages=1):
            key = at + n
            live = key < count
            distance = tl.abs(place[None, :] - context - key[:, None])
            visible = live[:, None] & ((window <= 0) | (distance < window))
            row = (start + key).to(tl.int64)
            top, weight, sums = attend_tile(
                q, top, weight, sums, block_keys, block_values, block_keys, block_values,
                row * key_row + head * key_head, row * value_row + head * value_head,
                row, live, visible, scale,
                DIM, W, CHUNKS, 0, False, PARTS, DIRECT, OPERAND, True,
            )  # fmt: skip
    return top, tl.max(weight, 0), sums


@triton.jit(do_not_specialize=["window", "table_row", "B", "S"])
def attend_splits(
    q,
    keys,
    values,
    key_scales,
    value_scales,
    block_keys,
    block_values,
    offsets,
    lengths,
    table,
    partial,  # [T, Hq, S, D] weighted values of each split
    parts,  # [T, Hq, S, 2] its top and weight
    scale,
    window,  # 0: none
    q_row,
    q_head,
    key_row,
    key_head,
    value_row,
    value_head,
    table_row,
    B,
    S,
    BB: tl.constexpr,
    GROUP: tl.constexpr,
    SPLIT: tl.constexpr,
    R: tl.constexpr,
    BN: tl.constexpr,
    DIM: tl.constexpr,
    W: tl.constexpr,
    CHUNKS: tl.constexpr,
    HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    SCALED: tl.constexpr,
    SCALES: tl.constexpr,
    PACKED: tl.constexpr,
    PARTS: tl.constexpr,
    FORM: tl.constexpr,
    OPERAND: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Each program takes every so-manieth of the splits that the lengths make; grid (programs,)."""
    tiles, splits = _sequences(offsets, lengths, window, B, GROUP, R, SPLIT, BN, BB, BLOCK)
    ends = tl.cumsum(tiles * splits * HEADS, 0)
    b_of = tl.arange(0, BB)
    for item in tl.range(tl.program_id(0), tl.max(ends, 0), tl.num_programs(0)):
        b = tl.sum((ends <= item).to(tl.int32), 0)
        before = tl.max(tl.where(b_of < b, ends, 0), 0)
        own_tiles = tl.max(tl.where(b_of == b, tiles, 0), 0)
        # Tiles of rows that read the same keys are neighbours.
        rest = item - before
        tile, head = rest % own_tiles, rest // own_tiles % HEADS
        split = rest // own_tiles // HEADS
        start = tl.load(offsets + b).to(tl.int32)
        count = tl.load(offsets + b + 1).to(tl.int32) - start
        length = tl.load(lengths + b).to(tl.int32)
        context = length - count
        token, q_of, place, live = _rows(start, count, length, tile, head, GROUP, R)
        at = q + token.to(tl.int64) * q_row + q_of * q_head
        rows_q = load_queries(at, live, DIM, W, CHUNKS, PARTS, OPERAND)
        low = _first_key(context, window, BN)
        reach = context if BLOCK else tl.max(place, 0) + 1
        sees_all = tl.where(window > 0, 0, context if BLOCK else tl.min(place, 0) + 1)
        number = split + low // SPLIT
        end = tl.minimum((number + 1) * SPLIT, reach)
        top, weight, sums = _split(
            rows_q, place, (keys, values, key_scales, value_scales),
            (block_keys, block_values, key_row, key_head, value_row, value_head),
            table + b.to(tl.int64) * table_row, head,
            _reach(context, window),
            tl.maximum(number * SPLIT, low), end, tl.minimum(sees_all, end) // BN * BN,
            (start, count, context), context // SPLIT == number, window, scale,
            R, SPLIT, BN, DIM, W, CHUNKS, HEADS, PAGE, SCALED, SCALES, PACKED, PARTS, FORM, OPERAND,
            BLOCK, STAGES,
        )  # fmt: skip
        part = (token.to(tl.int64) * (HEADS * GROUP) + q_of) * S + split
        tl.store(parts + 2 * part, top, mask=live)
        tl.store(parts + 2 * part + 1, weight, mask=live)
        for c in tl.static_range(CHUNKS):
            column = c * W + tl.arange(0, W)[:, None]
            to = partial + part[None, :] * DIM + column
            tl.store(to, sums[c], mask=live[None, :] & (column < DIM))


@triton.jit(do_not_specialize=["window", "B", "S"])
def join_splits(
    partial,
    parts,
    offsets,
    lengths,
    out,  # [T, Hq, D]
    window,
    B,
    S,
    BB: tl.constexpr,
    SPLIT: tl.constexpr,
    BN: tl.constexpr,
    DIM: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """The splits of a row added from left to right; grid (T, Hq, parts of a head)."""
    t = tl.program_id(0)
    b_of = tl.arange(0, BB)
    stops = tl.load(offsets + 1 + b_of, mask=b_of < B, other=t + 1)
    b = tl.sum((stops <= t).to(tl.int32), 0)
    # A captured call can have rows behind the last sequence.
    if b >= B:
        return
    start, stop = tl.load(offsets + b).to(tl.int32), tl.load(offsets + b + 1).to(tl.int32)
    length = tl.load(lengths + b).to(tl.int32)
    context = length - (stop - start)
    last = context if BLOCK else context + t - start
    count = last // SPLIT + 1 - _first_key(context, window, BN) // SPLIT
    row = t.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    column = tl.program_id(2) * W + tl.arange(0, W)
    inside = column < DIM
    top = tl.full((1,), float("-inf"), tl.float32)
    weight = tl.zeros((1,), tl.float32)
    sums = (tl.zeros((W, 1), tl.float32),)
    for first in range(0, count, UNROLL):
        tops, weights, values = (), (), ()
        # Loads first: they wait for memory together, the additions one behind the other.
        for u in tl.static_range(UNROLL):
            split = first + u + tl.zeros((1,), tl.int32)
            live = split < count
            at = parts + 2 * (row * S + split)
            tops = tops + (tl.load(at, mask=live, other=float("-inf")),)
            weights = weights + (tl.load(at + 1, mask=live, other=0.0),)
            at = partial + (row * S + split) * DIM + column
            values = values + (tl.load(at, mask=inside & live, other=0.0)[:, None],)
        for u in tl.static_range(UNROLL):
            top, weight, sums = fold(top, weight, sums, tops[u], weights[u], (values[u],), 1)
    result = tl.sum(sums[0] / weight[None, :], 1)
    tl.store(out + row * DIM + column, result, mask=inside)


@triton.jit(do_not_specialize=["window", "table_row", "B"])
def attend_rows(
    q,
    keys,
    values,
    key_scales,
    value_scales,
    block_keys,
    block_values,
    offsets,
    lengths,
    table,
    out,  # [T, Hq, D]
    scale,
    window,
    q_row,
    q_head,
    key_row,
    key_head,
    value_row,
    value_head,
    table_row,
    B,
    BB: tl.constexpr,
    GROUP: tl.constexpr,
    SPLIT: tl.constexpr,
    R: tl.constexpr,
    BN: tl.constexpr,
    DIM: tl.constexpr,
    W: tl.constexpr,
    CHUNKS: tl.constexpr,
    HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    SCALED: tl.constexpr,
    SCALES: tl.constexpr,
    PACKED: tl.constexpr,
    PARTS: tl.constexpr,
    FORM: tl.constexpr,
    OPERAND: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """All splits of a tile of rows by one program; grid (most row tiles there can be, KV heads)."""
    tiles, _ = _sequences(offsets, lengths, window, B, GROUP, R, SPLIT, BN, BB, BLOCK)
    ends = tl.cumsum(tiles, 0)
    # Late tiles see the most keys, so they start first.
    item = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    if item < tl.max(ends, 0):
        b = tl.sum((ends <= item).to(tl.int32), 0)
        tile = item - tl.max(tl.where(tl.arange(0, BB) < b, ends, 0), 0)
        start = tl.load(offsets + b).to(tl.int32)
        count = tl.load(offsets + b + 1).to(tl.int32) - start
        length = tl.load(lengths + b).to(tl.int32)
        context = length - count
        token, q_of, place, live = _rows(start, count, length, tile, head, GROUP, R)
        at = q + token.to(tl.int64) * q_row + q_of * q_head
        rows_q = load_queries(at, live, DIM, W, CHUNKS, PARTS, OPERAND)
        low = _first_key(context, window, BN)
        reach = context if BLOCK else tl.max(place, 0) + 1
        sees_all = tl.where(window > 0, 0, context if BLOCK else tl.min(place, 0) + 1)
        last = context if BLOCK else reach - 1
        top = tl.full((R,), float("-inf"), tl.float32)
        weight = tl.zeros((R,), tl.float32)
        sums = no_sums(W, R, CHUNKS)
        for number in range(low // SPLIT, last // SPLIT + 1):
            end = tl.minimum((number + 1) * SPLIT, reach)
            new_top, new_weight, new_sums = _split(
                rows_q, place, (keys, values, key_scales, value_scales),
                (block_keys, block_values, key_row, key_head, value_row, value_head),
                table + b.to(tl.int64) * table_row, head,
                _reach(context, window),
                tl.maximum(number * SPLIT, low), end, tl.minimum(sees_all, end) // BN * BN,
                (start, count, context), context // SPLIT == number, window, scale,
                R, SPLIT, BN, DIM, W, CHUNKS, HEADS, PAGE, SCALED, SCALES, PACKED, PARTS, FORM,
                OPERAND, BLOCK, STAGES,
            )  # fmt: skip
            top, weight, sums = fold(top, weight, sums, new_top, new_weight, new_sums, CHUNKS)
        place_out = (token.to(tl.int64) * (HEADS * GROUP) + q_of) * DIM
        for c in tl.static_range(CHUNKS):
            column = c * W + tl.arange(0, W)[:, None]
            to = out + place_out[None, :] + column
            tl.store(to, sums[c] / weight[None, :], mask=live[None, :] & (column < DIM))
