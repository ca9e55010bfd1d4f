"""Triton kernels of the gates and of the gated delta rule row by row.

A program has the whole matrix of one V head and one sequence in registers, as a tile
[P, V, 32]: key column 32 p + c is entry (p, c). A row's sums over key columns then take P additions
in a thread and three steps between threads, always in the same order. Rows that are pending and new
rows go through one loop, so that they cannot differ by a bit.
"""

import triton
import triton.language as tl

from ninfer.ops.kernel_math import rounded, softplus

CHUNK = tl.constexpr(64)
LANES = tl.constexpr(32)
# Which rows of a sequence with whole chunks a launch takes.
BEFORE = tl.constexpr(0)
BEHIND = tl.constexpr(1)


@triton.jit
def gates(a, b, a_log, dt_bias):
    """Logarithm of the decay and write strength, float32."""
    step = softplus(a.to(tl.float32) + dt_bias.to(tl.float32))
    return -tl.exp(a_log.to(tl.float32)) * step, tl.sigmoid(b.to(tl.float32))


@triton.jit(do_not_specialize=["T"])
def gating(
    a, b, a_log, dt_bias, g, beta, T, a_stride, b_stride, H: tl.constexpr, BLOCK: tl.constexpr
):
    """Gates of all rows; grid (blocks of T * H numbers)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    t, h = at // H, at % H
    live = t < T
    decay, strength = gates(
        tl.load(a + t * a_stride + h, mask=live, other=0.0),
        tl.load(b + t * b_stride + h, mask=live, other=0.0),
        tl.load(a_log + h, mask=live, other=0.0),
        tl.load(dt_bias + h, mask=live, other=0.0),
    )
    tl.store(g + at, decay, mask=live)
    tl.store(beta + at, strength, mask=live)


@triton.jit
def whole_chunks(start, stop, length):
    """Where whole chunks of the sequence's grid begin and end among its rows start..stop - 1."""
    position = length - (stop - start)
    first = tl.minimum(start + (CHUNK - position % CHUNK) % CHUNK, stop)
    return first, first + (stop - first) // CHUNK * CHUNK


@triton.jit
def rows_of_part(start, stop, length, kept, part):
    """First and last row that a launch takes, pending rows before them, and whether others follow.

    Sequences without whole chunks are done by the launch of BEFORE alone.
    """
    first, last = whole_chunks(start, stop, length)
    has_chunks = last > first
    begin, end, owed = start, tl.where(has_chunks, first, stop), kept
    if part == BEHIND:
        begin, end, owed = last, tl.where(has_chunks, stop, last), kept * 0
    return begin, end, owed, has_chunks


@triton.jit
def matrix_places(P: tl.constexpr, V: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr):
    """Offsets and mask of the tile [P, V, 32] in a matrix [DV, DK]."""
    p, v = tl.arange(0, P)[:, None, None], tl.arange(0, V)[None, :, None]
    d = LANES * p + tl.arange(0, LANES)[None, None, :]
    return v * DK + d, (v < DV) & (d < DK)


@triton.jit
def key_places(P: tl.constexpr, DK: tl.constexpr):
    """Offsets and mask of the tile [P, 32] of a key or query."""
    d = LANES * tl.arange(0, P)[:, None] + tl.arange(0, LANES)[None, :]
    return d, d < DK


@triton.jit
def advance(s, q, k, v, decay, strength):
    """One row of the rule: the matrix tile behind it, and its output [V] without the scale.

    The output comes from the matrix before the row, so that both of its sums are taken at once.
    """
    read = tl.sum(tl.sum(s * k[:, None, :], axis=0), axis=1)
    seen = tl.sum(tl.sum(s * q[:, None, :], axis=0), axis=1)
    shared = tl.sum(tl.sum(q * k, axis=1), axis=0)
    error = strength * (v - decay * read)
    return s * decay + error[None, :, None] * k[:, None, :], decay * seen + error * shared


@triton.jit(do_not_specialize=["window", "part"])
def delta_rows(
    q,
    k,
    v,
    g,
    beta,
    out,
    matrix,
    keys,
    values,
    decays,
    betas,
    pending,
    offsets,
    lengths,
    slots,
    held,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    window,
    part,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    P: tl.constexpr,
    V: tl.constexpr,
    STATE: tl.constexpr,
    TYPE: tl.constexpr,
    PLAIN: tl.constexpr,
):
    """Pending rows, then the rows of one part; windows stay. Grid (V heads, sequences)."""
    h, b = tl.program_id(0), tl.program_id(1)
    start, stop = tl.load(offsets + b), tl.load(offsets + b + 1)
    if start == stop:
        return
    slot = tl.load(slots + b)
    kept = tl.load(pending + slot)
    stays = False
    if held is not None:
        stays = tl.load(held + b) != 0
    begin, end, owed, _ = rows_of_part(start, stop, tl.load(lengths + b), kept, part)
    count = owed + end - begin
    if count == 0:
        return
    d, in_key = key_places(P, DK)
    lane = tl.arange(0, V)
    in_value = lane < DV
    tile, live = matrix_places(P, V, DK, DV)
    place = matrix + (slot * HEADS + h) * (DV * DK) + tile
    s = tl.load(place, mask=live, other=0.0).to(tl.float32)
    head = h // GROUP
    for i in range(count):
        if i < owed:
            row = slot * window + i
            key = tl.load(keys + (row * (HEADS // GROUP) + head) * DK + d, mask=in_key, other=0.0)
            value = tl.load(values + (row * HEADS + h) * DV + lane, mask=in_value, other=0.0)
            log, strength = tl.load(decays + row * HEADS + h), tl.load(betas + row * HEADS + h)
            query = tl.zeros_like(key)
        else:
            t = begin + i - owed
            key = tl.load(k + t * k_row + head * k_head + d, mask=in_key, other=0.0)
            value = tl.load(v + t * v_row + h * v_head + lane, mask=in_value, other=0.0)
            log, strength = tl.load(g + t * HEADS + h), tl.load(beta + t * HEADS + h)
            query = tl.load(q + t * q_row + head * q_head + d, mask=in_key, other=0.0)
        s, o = advance(
            s,
            query.to(tl.float32),
            key.to(tl.float32),
            value.to(tl.float32),
            tl.exp(log),
            strength,
        )
        s = rounded(s, STATE, PLAIN)
        if i >= owed:
            at = ((begin + i - owed) * HEADS + h) * DV + lane
            tl.store(out + at, rounded(o * scale, TYPE, PLAIN), mask=in_value)
        if stays and i == owed - 1:
            tl.store(place, s, mask=live)
    if not stays:
        tl.store(place, s, mask=live)


@triton.jit(do_not_specialize=["window"])
def keep_rows(
    k,
    v,
    g,
    beta,
    keys,
    values,
    decays,
    betas,
    offsets,
    slots,
    held,
    k_row,
    k_head,
    v_row,
    v_head,
    window,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
):
    """Put the rows of held sequences into their windows; grid (V heads, sequences)."""
    h, b = tl.program_id(0), tl.program_id(1)
    if tl.load(held + b) == 0:
        return
    start, stop = tl.load(offsets + b), tl.load(offsets + b + 1)
    slot = tl.load(slots + b)
    head, d, lane = h // GROUP, tl.arange(0, K), tl.arange(0, V)
    for r in range(tl.minimum(stop - start, window)):
        t, row = start + r, slot * window + r
        if h % GROUP == 0:
            key = tl.load(k + t * k_row + head * k_head + d, mask=d < DK, other=0.0)
            tl.store(keys + (row * (HEADS // GROUP) + head) * DK + d, key, mask=d < DK)
        value = tl.load(v + t * v_row + h * v_head + lane, mask=lane < DV, other=0.0)
        tl.store(values + (row * HEADS + h) * DV + lane, value, mask=lane < DV)
        tl.store(decays + row * HEADS + h, tl.load(g + t * HEADS + h))
        tl.store(betas + row * HEADS + h, tl.load(beta + t * HEADS + h))
