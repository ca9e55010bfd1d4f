"""Triton kernels of the experts: two passes over (expert, block of rows), and the sum of ranks.

Pair p = t * k + r is rank r of token t. A program of a pass serves one expert: with few tokens that
of the pair it stands for, if no earlier pair chose it, so that an expert is read once however many
tokens want it, and nothing has to be grouped before; with many tokens a span of sorted pairs.
The shared expert's tiles of tokens come first in the same grid.

What travels in tuples is said in `block_kernels`.
"""

import triton
import triton.language as tl

from ninfer.ops.moe.block_kernels import down_block, gate_up_block


@triton.jit
def _claimed(ids, p, T, PAIRS: tl.constexpr):
    """Who chose the expert of pair p: (expert, count, places [TP], pairs [TP]).

    The places number the tokens that did, -1 for the others. None is counted when an earlier pair
    chose the same expert: its program serves them all.
    """
    TOP_K: tl.constexpr = PAIRS[0]
    expert = tl.load(ids + p)
    t, rank = tl.arange(0, PAIRS[2])[:, None], tl.arange(0, PAIRS[1])[None, :]
    pair = t * TOP_K + rank
    every = tl.load(ids + pair, mask=(t < T) & (rank < TOP_K), other=-1)
    found = tl.where(every == expert, pair, T * TOP_K)
    first = tl.min(found, 1)  # no token chooses an expert twice
    chose = (first < T * TOP_K).to(tl.int32)
    places = tl.where(chose > 0, tl.cumsum(chose, 0) - 1, -1)
    count = tl.where(tl.min(first, 0) == p, tl.sum(chose, 0), 0)
    return expert, count, places, first


@triton.jit
def _span(spans, item, items, TN: tl.constexpr):
    """(expert, TN, first place, last place) of an item of `spans` [3, items]; nothing for -1."""
    expert = tl.load(spans + item).to(tl.int64)
    count = tl.where(expert < 0, 0, TN)
    return expert, count, tl.load(spans + items + item), tl.load(spans + 2 * items + item)


@triton.jit
def _pairs_at(order, places, pairs, start, missing, TP: tl.constexpr, TN: tl.constexpr):
    """Pairs [TN] of a program from place `start` on; `missing` where there are none.

    `places` and `pairs` are those of `_claimed`, or the first and the last place of a span.
    """
    place = start + tl.arange(0, TN)
    if TP == 0:
        place += places
        return tl.load(order + place, mask=place < pairs, other=missing)
    else:
        hit = places[None, :] == place[:, None]
        return tl.min(tl.where(hit, pairs[None, :], missing), 1)


@triton.jit(do_not_specialize=["T", "tiles", "items", "counters"])
def gate_up(
    x,
    ids,
    spans,
    order,
    act,
    shared_act,
    arrived,
    routed,
    shared,
    T,
    K,
    width,
    shared_width,
    stride,
    tiles,  # token tiles of the shared expert
    items,  # of the routed experts
    counters,  # to be set to zero
    ROUTED: tl.constexpr,
    SHARED: tl.constexpr,
    PAIRS: tl.constexpr,
    SIZES: tl.constexpr,
):
    """Gate, up and SwiGLU of all experts; grid (blocks of R inner rows, tiles + items)."""
    R: tl.constexpr = SIZES[0]
    TN: tl.constexpr = SIZES[1]
    source = (x, T, stride, K)
    item = tl.program_id(1)
    if (item == 0) & (tl.program_id(0) == 0):
        for start in range(0, counters, 64):
            at = start + tl.arange(0, 64)
            tl.store(arrived + at, tl.zeros((64,), tl.int32), mask=at < counters)
    if item < tiles:
        if tl.program_id(0) * R < shared_width:
            t = item * TN + tl.arange(0, TN)
            only = tl.zeros((), tl.int64)
            gate_up_block(source, shared_act, t, t, only, shared_width, shared, SHARED, SIZES)
    elif tl.program_id(0) * R < width:
        item -= tiles
        if PAIRS[2] == 0:
            expert, count, places, pairs = _span(spans, item, items, TN)
        else:
            expert, count, places, pairs = _claimed(ids, item, T, PAIRS)
        for start in range(0, count, TN):
            pair = _pairs_at(order, places, pairs, start, T * PAIRS[0], PAIRS[2], TN)
            gate_up_block(source, act, pair // PAIRS[0], pair, expert, width, routed, ROUTED, SIZES)


@triton.jit
def _rank_sum(partial, weights, score, out, t, row, D, TOP_K: tl.constexpr):
    """out[t] at `row` = sum of the ranks in order, each by its weight, and the shared expert."""
    live = row < D
    source = partial + t * (TOP_K + 1) * D + row
    total = tl.zeros(row.shape, tl.float32)
    for rank in tl.static_range(TOP_K):
        weight = tl.load(weights + t * TOP_K + rank).to(tl.float32)
        total += weight * tl.load(source + rank * D, mask=live, other=0.0)
    gate = tl.sigmoid(tl.load(score + t).to(tl.float32))
    total += gate * tl.load(source + TOP_K * D, mask=live, other=0.0)
    tl.store(out + t * D + row, total, mask=live)


@triton.jit(do_not_specialize=["T", "tiles", "items"])
def down(
    act,
    shared_act,
    ids,
    spans,
    order,
    weights,
    score,
    partial,  # [T, k + 1, D], the shared expert last
    arrived,
    out,
    routed,
    shared,
    T,
    width,
    shared_width,
    D,
    tiles,
    items,
    ROUTED: tl.constexpr,
    SHARED: tl.constexpr,
    PAIRS: tl.constexpr,
    SIZES: tl.constexpr,
    SUMS: tl.constexpr,  # whether the last program of a block adds the ranks up
):
    """Down products of all experts; grid (blocks of 2 R rows, tiles + items)."""
    R: tl.constexpr = SIZES[0]
    TN: tl.constexpr = SIZES[1]
    TOP_K: tl.constexpr = PAIRS[0]
    item = tl.program_id(1)
    if item < tiles:
        source = (shared_act, T, shared_width, shared_width)
        t = item * TN + tl.arange(0, TN)
        only = tl.zeros((), tl.int64)
        place = t * (TOP_K + 1) + TOP_K
        down_block(source, partial, t, place, only, D, shared, SHARED, SIZES)
    else:
        source = (act, T * TOP_K, width, width)
        if PAIRS[2] == 0:
            expert, count, places, pairs = _span(spans, item - tiles, items, TN)
        else:
            expert, count, places, pairs = _claimed(ids, item - tiles, T, PAIRS)
        for start in range(0, count, TN):
            pair = _pairs_at(order, places, pairs, start, T * TOP_K, PAIRS[2], TN)
            place = pair + pair // TOP_K
            down_block(source, partial, pair, place, expert, D, routed, ROUTED, SIZES)
    if SUMS:
        # What all threads have stored is seen by whoever sees this program's arrival.
        tl.debug_barrier()
        before = tl.atomic_add(arrived + tl.program_id(0), 1, sem="acq_rel")
        if before == tiles + items - 1:
            row = tl.program_id(0) * 2 * R + tl.arange(0, 2 * R)
            for t in range(T):
                _rank_sum(partial, weights, score, out, t, row, D, TOP_K)


@triton.jit
def sum_ranks(partial, weights, score, out, D, TOP_K: tl.constexpr, BLOCK: tl.constexpr):
    """What `down` leaves to do where tokens are many; grid (blocks of columns, tokens)."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    _rank_sum(partial, weights, score, out, tl.program_id(1).to(tl.int64), row, D, TOP_K)
