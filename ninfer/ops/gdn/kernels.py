"""Triton kernels of the gates and of the gated delta rule row by row.

A program has the whole matrix of one V head and one sequence in registers, as a tile [V, L, 2, 2]
of four quarters: key column L (a + 2 b) + c is entry (c, a, b). The quarters are loaded one by one
and joined, which leaves no compiler a choice: a thread has the four numbers (a, b) of a place. A
row's sums over key columns take additions in a thread and three steps between threads, always in
the same order. Rows that are pending and new rows go through one loop, so that they cannot differ
by a bit.
"""

import triton
import triton.language as tl

from ninfer.ops.kernel_math import rounded, softplus

CHUNK = tl.constexpr(64)
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
def matrix_quarter(i: tl.constexpr, L: tl.constexpr, V: tl.constexpr, DK, DV):
    """Offsets and mask of quarter i [V, L] of a matrix [DV, DK]."""
    v, d = tl.arange(0, V)[:, None], i * L + tl.arange(0, L)[None, :]
    return v * DK + d, (v < DV) & (d < DK)


@triton.jit
def load_matrix(matrix, L: tl.constexpr, V: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr):
    """The tile of a matrix [DV, DK], float32, 0 outside of it."""
    at0, live0 = matrix_quarter(0, L, V, DK, DV)
    at1, live1 = matrix_quarter(1, L, V, DK, DV)
    at2, live2 = matrix_quarter(2, L, V, DK, DV)
    at3, live3 = matrix_quarter(3, L, V, DK, DV)
    s0 = tl.load(matrix + at0, mask=live0, other=0.0).to(tl.float32)
    s1 = tl.load(matrix + at1, mask=live1, other=0.0).to(tl.float32)
    s2 = tl.load(matrix + at2, mask=live2, other=0.0).to(tl.float32)
    s3 = tl.load(matrix + at3, mask=live3, other=0.0).to(tl.float32)
    return tl.join(tl.join(s0, s1), tl.join(s2, s3))


@triton.jit
def store_matrix(matrix, s, L: tl.constexpr, V: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr):
    """Store what of the tile is inside the matrix."""
    low, high = tl.split(s)
    s0, s1 = tl.split(low)
    s2, s3 = tl.split(high)
    at0, live0 = matrix_quarter(0, L, V, DK, DV)
    at1, live1 = matrix_quarter(1, L, V, DK, DV)
    at2, live2 = matrix_quarter(2, L, V, DK, DV)
    at3, live3 = matrix_quarter(3, L, V, DK, DV)
    tl.store(matrix + at0, s0, mask=live0)
    tl.store(matrix + at1, s1, mask=live1)
    tl.store(matrix + at2, s2, mask=live2)
    tl.store(matrix + at3, s3, mask=live3)


@triton.jit
def key_places(L: tl.constexpr, DK: tl.constexpr):
    """Offsets and mask of the tile [L, 2, 2] of a key or query."""
    a, b = tl.arange(0, 2)[None, :, None], tl.arange(0, 2)[None, None, :]
    d = tl.arange(0, L)[:, None, None] + L * (a + 2 * b)
    return d, d < DK


@triton.jit
def over_keys(x):
    """Sum of a key tile [L, 2, 2]."""
    return tl.sum(tl.sum(tl.sum(x, axis=2), axis=1), axis=0)


@triton.jit
def _over_rows(x):
    """Sums over keys of a matrix tile: [V]."""
    return tl.sum(tl.sum(tl.sum(x, axis=3), axis=2), axis=1)


@triton.jit
def advance(s, q, k, v, decay, strength):
    """One row of the rule: the matrix tile behind it, and its output [V] without the scale.

    The output comes from the matrix before the row, so that both of its sums are taken at once.
    """
    key = k[None, :, :, :]
    read, seen = _over_rows(s * key), _over_rows(s * q[None, :, :, :])
    error = strength * (v - decay * read)
    return s * decay + error[:, None, None, None] * key, decay * seen + error * over_keys(q * k)


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
    L: tl.constexpr,
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
    d, in_key = key_places(L, DK)
    lane = tl.arange(0, V)
    in_value = lane < DV
    place = matrix + (slot * HEADS + h) * (DV * DK)
    s = load_matrix(place, L, V, DK, DV)
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
            store_matrix(place, s, L, V, DK, DV)
    if not stays:
        store_matrix(place, s, L, V, DK, DV)


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
