"""Triton kernels of the gated delta rule for whole chunks of 64 rows.

`prepare` works on all chunks at once and finds what does not depend on the matrix; `scan` goes
through the chunks of a sequence in order. The formulas are those of the reference's `chunked`, with
N = (I + A)^-1 diag(beta) (V - exp(G) K S^T) in place of U - W S^T. Products take part in float32
precision: numbers are cut into 16-bit parts where tensor cores multiply them.
"""

import triton
import triton.language as tl

from ninfer.ops.gdn.kernels import CHUNK, whole_chunks
from ninfer.ops.kernel_math import rounded, stored_product, wide_product

BLOCK = tl.constexpr(16)
# exp() of it is 0, and it keeps one huge decay from swamping its neighbours.
FLOOR = tl.constexpr(-200.0)


@triton.jit
def chunks_of(offsets, lengths, held, B, BLOCK_B: tl.constexpr):
    """Number of whole chunks of each sequence [BLOCK_B], and the row that the first begins at."""
    b = tl.arange(0, BLOCK_B)
    live = b < B
    start = tl.load(offsets + b, mask=live, other=0)
    stop = tl.load(offsets + b + 1, mask=live, other=0)
    first, last = whole_chunks(start, stop, tl.load(lengths + b, mask=live, other=0))
    count = (last - first) // CHUNK
    if held is not None:
        count = tl.where(tl.load(held + b, mask=live, other=0) != 0, 0, count)
    return count, first


@triton.jit
def first_row(chunk, offsets, lengths, held, B, BLOCK_B: tl.constexpr):
    """The first row of a chunk, of all chunks of the call in order; -1 behind the last."""
    count, first = chunks_of(offsets, lengths, held, B, BLOCK_B)
    through = tl.cumsum(count, 0)
    own = (through > chunk) & (through - count <= chunk)
    row = tl.sum(tl.where(own, first + CHUNK * (chunk - through + count), 0), axis=0)
    return tl.where(chunk < tl.sum(count, axis=0), row, -1)


@triton.jit
def _running(g, carry):
    """Running sums of logarithms in two float32 parts, and the sum of all, from float64 sums."""
    total = carry + tl.cumsum(g, 0)
    high = total.to(tl.float32)
    return high, (total - high.to(tl.float64)).to(tl.float32), carry + tl.sum(g, axis=0)


@triton.jit
def _ratio(high, low, other_high, other_low):
    """Differences of running sums [t, s]; they would lose the digits that the sums have gained."""
    return (high[:, None] - other_high[None, :]) + (low[:, None] - other_low[None, :])


@triton.jit
def _logs(g, first, h, HEADS: tl.constexpr, SIZE: tl.constexpr):
    value = tl.load(g + (first + tl.arange(0, SIZE)) * HEADS + h)
    return tl.maximum(value, FLOOR).to(tl.float64)


@triton.jit
def _key_rows(k, first, row, head, DK: tl.constexpr, K: tl.constexpr, SIZE: tl.constexpr):
    """Rows [SIZE, K] of one key head from row `first` on."""
    t, d = first + tl.arange(0, SIZE), tl.arange(0, K)
    return tl.load(k + (t * row)[:, None] + head + d[None, :], mask=(d < DK)[None, :], other=0.0)


@triton.jit
def _tile(k_t, k_s, high, low, other_high, other_low, strength):
    """beta_t L[t, s] (k_t . k_s) for two blocks of rows, the first behind the second."""
    inner = tl.dot(k_t, tl.trans(k_s), input_precision="ieee")
    return inner * tl.exp(_ratio(high, low, other_high, other_low)) * strength[:, None]


@triton.jit
def _inverse(k, high, low, strength):
    """(I + A)^-1 of a diagonal block, column after column of A."""
    t, s = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    inner = tl.dot(k, tl.trans(k), input_precision="ieee")
    ratio = tl.exp(tl.where(t > s, _ratio(high, low, high, low), float("-inf")))
    a = inner * ratio * strength[:, None]
    x = tl.where(t == s, 1.0, 0.0)
    for m in range(BLOCK - 1):
        column = tl.sum(tl.where(s == m, a, 0.0), axis=1)
        row = tl.sum(tl.where(t == m, x, 0.0), axis=0)
        x -= column[:, None] * row[None, :]
    return x


@triton.jit
def _times(x, y):
    return tl.dot(x, y, input_precision="ieee")


@triton.jit
def _put(transform, x, strength, i: tl.constexpr, j: tl.constexpr):
    """Store a block (i, j) of the transform, its columns scaled by the write strengths."""
    t, s = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    at = transform + (BLOCK * i + t) * CHUNK + BLOCK * j + s
    tl.store(at, x * strength[None, :])


@triton.jit(do_not_specialize=["B"])
def prepare(
    q,
    k,
    g,
    beta,
    transform,  # [chunks, HEADS, 64, 64] (I + A)^-1 diag(beta)
    inner,  # [chunks, HEADS, 64, 64] Q K^T * L
    sides,  # [chunks, HEADS, 2, 64] exp(G), exp(G_last - G)
    offsets,
    lengths,
    held,
    B,
    q_row,
    q_head,
    k_row,
    k_head,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DK: tl.constexpr,
    K: tl.constexpr,
    BLOCK_B: tl.constexpr,
    HALF: tl.constexpr,
):
    """What a chunk is without its matrix; grid (chunks that the call can have, V heads)."""
    chunk, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first = first_row(chunk, offsets, lengths, held, B, BLOCK_B)
    if first < 0:
        return
    place = chunk * HEADS + h
    transform += place * CHUNK * CHUNK
    k_at, q_at = (h // GROUP) * k_head, (h // GROUP) * q_head

    high, low, whole = _running(_logs(g, first, h, HEADS, CHUNK), 0.0)
    t = tl.arange(0, CHUNK)
    tl.store(sides + place * 2 * CHUNK + t, tl.exp(high))
    total = high.to(tl.float64) + low.to(tl.float64)
    tl.store(sides + (place * 2 + 1) * CHUNK + t, tl.exp((whole - total).to(tl.float32)))
    keys = _key_rows(k, first, k_row, k_at, DK, K, CHUNK).to(HALF)
    queries = _key_rows(q, first, q_row, q_at, DK, K, CHUNK).to(HALF)
    ratio = tl.where(t[:, None] >= t[None, :], _ratio(high, low, high, low), float("-inf"))
    within = tl.dot(queries, tl.trans(keys), input_precision="ieee") * tl.exp(ratio)
    tl.store(inner + (place * CHUNK + t[:, None]) * CHUNK + t[None, :], within)

    b0 = tl.load(beta + (first + tl.arange(0, BLOCK)) * HEADS + h)
    b1 = tl.load(beta + (first + BLOCK + tl.arange(0, BLOCK)) * HEADS + h)
    b2 = tl.load(beta + (first + 2 * BLOCK + tl.arange(0, BLOCK)) * HEADS + h)
    b3 = tl.load(beta + (first + 3 * BLOCK + tl.arange(0, BLOCK)) * HEADS + h)
    k0 = _key_rows(k, first, k_row, k_at, DK, K, BLOCK).to(HALF)
    k1 = _key_rows(k, first + BLOCK, k_row, k_at, DK, K, BLOCK).to(HALF)
    k2 = _key_rows(k, first + 2 * BLOCK, k_row, k_at, DK, K, BLOCK).to(HALF)
    k3 = _key_rows(k, first + 3 * BLOCK, k_row, k_at, DK, K, BLOCK).to(HALF)
    h0, l0, carry = _running(_logs(g, first, h, HEADS, BLOCK), 0.0)
    h1, l1, carry = _running(_logs(g, first + BLOCK, h, HEADS, BLOCK), carry)
    h2, l2, carry = _running(_logs(g, first + 2 * BLOCK, h, HEADS, BLOCK), carry)
    h3, l3, carry = _running(_logs(g, first + 3 * BLOCK, h, HEADS, BLOCK), carry)
    # Block rows of the inverse, each from those above it.
    x00 = _inverse(k0, h0, l0, b0)
    x11 = _inverse(k1, h1, l1, b1)
    x22 = _inverse(k2, h2, l2, b2)
    x33 = _inverse(k3, h3, l3, b3)
    x10 = -_times(x11, _times(_tile(k1, k0, h1, l1, h0, l0, b1), x00))
    a20, a21 = _tile(k2, k0, h2, l2, h0, l0, b2), _tile(k2, k1, h2, l2, h1, l1, b2)
    x20 = -_times(x22, _times(a20, x00) + _times(a21, x10))
    x21 = -_times(x22, _times(a21, x11))
    a30, a31 = _tile(k3, k0, h3, l3, h0, l0, b3), _tile(k3, k1, h3, l3, h1, l1, b3)
    a32 = _tile(k3, k2, h3, l3, h2, l2, b3)
    x30 = -_times(x33, _times(a30, x00) + _times(a31, x10) + _times(a32, x20))
    x31 = -_times(x33, _times(a31, x11) + _times(a32, x21))
    x32 = -_times(x33, _times(a32, x22))
    zero = tl.zeros((BLOCK, BLOCK), tl.float32)
    _put(transform, x00, b0, 0, 0)
    _put(transform, zero, b1, 0, 1)
    _put(transform, zero, b2, 0, 2)
    _put(transform, zero, b3, 0, 3)
    _put(transform, x10, b0, 1, 0)
    _put(transform, x11, b1, 1, 1)
    _put(transform, zero, b2, 1, 2)
    _put(transform, zero, b3, 1, 3)
    _put(transform, x20, b0, 2, 0)
    _put(transform, x21, b1, 2, 1)
    _put(transform, x22, b2, 2, 2)
    _put(transform, zero, b3, 2, 3)
    _put(transform, x30, b0, 3, 0)
    _put(transform, x31, b1, 3, 1)
    _put(transform, x32, b2, 3, 2)
    _put(transform, x33, b3, 3, 3)


@triton.jit(do_not_specialize=["B"])
def scan(
    q,
    k,
    v,
    transform,
    inner,
    sides,
    out,
    matrix,
    offsets,
    lengths,
    slots,
    held,
    B,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    K: tl.constexpr,
    COLUMNS: tl.constexpr,  # value columns of a program
    BLOCK_B: tl.constexpr,
    STATE: tl.constexpr,
    TYPE: tl.constexpr,
    HALF: tl.constexpr,
    PLAIN: tl.constexpr,
):
    """All whole chunks of a sequence in order; grid (value blocks, V heads, sequences)."""
    h, b = tl.program_id(1), tl.program_id(2)
    count, firsts = chunks_of(offsets, lengths, held, B, BLOCK_B)
    index = tl.arange(0, BLOCK_B)
    chunks = tl.sum(tl.where(index == b, count, 0), axis=0)
    if chunks == 0:
        return
    first = tl.sum(tl.where(index == b, firsts, 0), axis=0)
    before = tl.sum(tl.where(index < b, count, 0), axis=0)
    slot = tl.load(slots + b)
    d, c = tl.arange(0, K), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    live = (d < DK)[:, None] & (c < DV)[None, :]
    # The matrix is taken transposed: its products have 64 rows or more then.
    at = matrix + (slot * HEADS + h) * (DV * DK) + c[None, :] * DK + d[:, None]
    s = tl.load(at, mask=live, other=0.0).to(tl.float32)
    t = tl.arange(0, CHUNK)
    square = t[:, None] * CHUNK + t[None, :]
    k_at, q_at = (h // GROUP) * k_head, (h // GROUP) * q_head
    for n in range(chunks):
        place = (before + n) * HEADS + h
        row = first + n * CHUNK
        keys = _key_rows(k, row, k_row, k_at, DK, K, CHUNK).to(HALF)
        v_at = v + ((row + t) * v_row)[:, None] + h * v_head + c[None, :]
        value = tl.load(v_at, mask=(c < DV)[None, :], other=0.0).to(tl.float32)
        rise = tl.load(sides + place * 2 * CHUNK + t)
        fall = tl.load(sides + (place * 2 + 1) * CHUNK + t)
        last = tl.load(sides + place * 2 * CHUNK + CHUNK - 1)
        solve = tl.load(transform + place * CHUNK * CHUNK + square)
        fresh = value - rise[:, None] * stored_product(keys, s, HALF)
        fresh = wide_product(solve, fresh, HALF)
        queries = _key_rows(q, row, q_row, q_at, DK, K, CHUNK).to(HALF)
        within = tl.load(inner + place * CHUNK * CHUNK + square)
        o = rise[:, None] * stored_product(queries, s, HALF) + wide_product(within, fresh, HALF)
        o_at = out + (((row + t) * HEADS + h) * DV)[:, None] + c[None, :]
        tl.store(o_at, rounded(o * scale, TYPE, PLAIN), mask=(c < DV)[None, :])
        s = s * last + stored_product(tl.trans(keys), fresh * fall[:, None], HALF)
        s = rounded(s, STATE, PLAIN)
    tl.store(at, s, mask=live)
