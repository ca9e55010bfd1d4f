"""Triton kernels on single logits and whole rows: penalties, bias, masks, log-probabilities."""

import triton
import triton.language as tl

from ninfer.ops.sampling.kernels.bins import uniform_bits


@triton.jit(do_not_specialize=["width"])
def penalise_rows(
    logits,
    stride,
    counts,
    count_stride,
    presence,
    frequency,
    repetition,
    out,
    width,
    HAS_REPETITION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Penalties of counted ids; grid (blocks, rows)."""
    row = tl.program_id(1).to(tl.int64)
    ids = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = ids < width
    x = tl.load(logits + row * stride + ids, mask=live, other=0.0).to(tl.float32)
    count = tl.load(counts + row * count_stride + ids, mask=live, other=0).to(tl.int32)
    x = penalised(x, count, presence + row, frequency + row, repetition, row, HAS_REPETITION)
    tl.store(out + row * width + ids, x, mask=live)


@triton.jit
def penalised(x, count, presence, frequency, repetition, row, HAS_REPETITION: tl.constexpr):
    """Logits after the penalties of a row for their counts; repetition comes first."""
    seen = count > 0
    if HAS_REPETITION:
        factor = tl.load(repetition + row).to(tl.float32)
        # Correctly rounded, as the reference's quotient is.
        fewer = tl.where(x > 0, tl.div_rn(x, tl.zeros_like(x) + factor), x * factor)
        x = tl.where(seen, fewer, x)
    x -= tl.where(seen, tl.load(presence).to(tl.float32), 0.0)
    return x - count.to(tl.float32) * tl.load(frequency).to(tl.float32)


@triton.jit(do_not_specialize=["width"])
def copy_rows(logits, stride, out, width, BLOCK: tl.constexpr):
    """Logits as float32; grid (blocks, rows)."""
    row = tl.program_id(1).to(tl.int64)
    ids = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = ids < width
    x = tl.load(logits + row * stride + ids, mask=live, other=0.0)
    tl.store(out + row * width + ids, x.to(tl.float32), mask=live)


@triton.jit(do_not_specialize=["pairs", "width"])
def add_pairs(rows, ids, values, out, pairs, width, BLOCK: tl.constexpr):
    """Add values at (row, id), all different; grid (blocks of pairs,)."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = n < pairs
    at = tl.load(rows + n, mask=live, other=0) * width + tl.load(ids + n, mask=live, other=0)
    x = tl.load(out + at, mask=live, other=0.0)
    value = tl.load(values + n, mask=live, other=0.0).to(tl.float32)
    tl.store(out + at, x + value, mask=live)


@triton.jit
def is_allowed(ids, masks, words):
    """Bits of ids in one mask; ids behind its last word are not allowed."""
    word = tl.load(masks + ids // 32, mask=ids < 32 * words, other=0)
    return ((word >> (ids % 32)) & 1) != 0


@triton.jit(do_not_specialize=["width", "words"])
def mask_rows(logits, stride, allowed, allowed_stride, out, width, words, BLOCK: tl.constexpr):
    """Logits of allowed ids, -inf elsewhere; grid (blocks, rows)."""
    row = tl.program_id(1).to(tl.int64)
    ids = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = ids < width
    x = tl.load(logits + row * stride + ids, mask=live, other=0.0).to(tl.float32)
    x = tl.where(is_allowed(ids, allowed + row * allowed_stride, words), x, float("-inf"))
    tl.store(out + row * width + ids, x, mask=live)


@triton.jit(do_not_specialize=["limit"])
def masses_of_blocks(x, stride, limit, tops, masses, BLOCK: tl.constexpr):
    """Best logit of each block and the sum of exp(x - best); grid (blocks, rows)."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + ids, mask=ids < limit, other=float("-inf")).to(tl.float32)
    top = tl.max(tl.where(value != value, float("inf"), value))
    # Of a block that cannot be used only the best logit counts.
    is_usable = (top < float("inf")) & (top > float("-inf"))
    powers = tl.exp(tl.where(is_usable, value - tl.where(is_usable, top, 0.0), float("-inf")))
    to = row * tl.num_programs(0) + block
    tl.store(tops + to, top)
    tl.store(masses + to, tl.sum(powers))


@triton.jit(do_not_specialize=["count"])
def read_logprobs(
    x, stride, ids, ids_stride, tops, masses, blocks, out, count,
    BLOCKS: tl.constexpr, READ: tl.constexpr,
):  # fmt: skip
    """log softmax at some ids; NaN in a row that cannot be used. Grid (parts of ids, rows)."""
    row = tl.program_id(1).to(tl.int64)
    place = tl.arange(0, BLOCKS)
    live = place < blocks
    top = tl.load(tops + row * blocks + place, mask=live, other=float("-inf"))
    mass = tl.load(masses + row * blocks + place, mask=live, other=0.0).to(tl.float64)
    best = tl.max(top)
    is_usable = (best < float("inf")) & (best > float("-inf"))
    best = tl.where(is_usable, best, 0.0)
    gap = tl.where(is_usable, top, 0.0).to(tl.float64) - best.to(tl.float64)
    total = tl.sum(mass * tl.exp(gap))
    log = tl.log(tl.where(is_usable, total, 1.0)).to(tl.float32)
    n = tl.program_id(0) * READ + tl.arange(0, READ)
    live = n < count
    token = tl.load(ids + row * ids_stride + n, mask=live, other=0)
    # A row of nothing usable has ids of -1 here.
    value = tl.load(x + row * stride + tl.maximum(token, 0), mask=live, other=0.0).to(tl.float32)
    value = tl.where(is_usable, value - best - log, float("nan"))
    tl.store(out + row * count + n, value, mask=live)


@triton.jit
def _steps(ids, weights, row, width, start, carry, BLOCK: tl.constexpr):
    """Ids and running weights of a part of a list."""
    n = start + tl.arange(0, BLOCK)
    live = n < width
    weight = tl.load(weights + row * width + n, mask=live, other=0.0)
    return tl.load(ids + row * width + n, mask=live, other=-1), carry + tl.cumsum(weight, 0)


@triton.jit(do_not_specialize=["width"])
def draw_rows(ids, weights, u, out, width, BLOCK: tl.constexpr):
    """The first id whose running weight exceeds u times the sum, float64; grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    mass = tl.zeros((), tl.float64)
    for start in range(0, width, BLOCK):
        _, upto = _steps(ids, weights, row, width, start, mass, BLOCK)
        mass = tl.max(upto)
    # A u just below 1 may round up to the whole mass, behind the last candidate.
    last = (mass.to(tl.int64, bitcast=True) - 1).to(tl.float64, bitcast=True)
    target = tl.minimum(tl.load(u + row).to(tl.float64) * mass, last)
    carry = tl.zeros((), tl.float64)
    token = tl.full((), -1, tl.int64)
    for start in range(0, width, BLOCK):
        found, upto = _steps(ids, weights, row, width, start, carry, BLOCK)
        first = tl.min(tl.where(upto > target, tl.arange(0, BLOCK), BLOCK))
        is_here = (carry <= target) & (first < BLOCK)
        here = tl.sum(tl.where(tl.arange(0, BLOCK) == first, found, 0))
        token = tl.where(is_here, here, token)
        carry = tl.max(upto)
    tl.store(out + row, token)


@triton.jit(do_not_specialize=["count"])
def draw_numbers(seeds, positions, purposes, out, count, BLOCK: tl.constexpr):
    """Uniform numbers by counter; grid (blocks,)."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = n < count
    bits = uniform_bits(
        tl.load(seeds + n, mask=live, other=0),
        tl.load(positions + n, mask=live, other=0),
        tl.load(purposes + n, mask=live, other=0),
    )
    tl.store(out + n, bits.to(tl.float32) * (1.0 / 16777216.0), mask=live)
