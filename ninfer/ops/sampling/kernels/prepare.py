"""The first launch of a draw: rules, settings, the best logit of each block, in Triton."""

import triton
import triton.language as tl

from ninfer.ops.sampling.kernels.bins import (
    BINS,
    COPIES,
    FLOOR,
    HEAT,
    KEEP,
    NUCLEUS,
    PLACE,
    SCALE,
    SETTINGS,
    uniform_bits,
)
from ninfer.ops.sampling.kernels.rows import is_allowed, penalised


@triton.jit
def ruled(
    x,
    ids,
    row,
    bias_ids,
    bias_values,
    presence,
    frequency,
    repetition,
    counts,
    count_rows,
    earlier,
    allowed,
    allowed_rows,
    biases,
    earliers,
    words,
    width,
    HAS_BIAS: tl.constexpr,
    HAS_PENALTIES: tl.constexpr,
    HAS_ALLOWED: tl.constexpr,
):
    """Logits x of some ids of a row after bias, penalties and constraint."""
    if HAS_BIAS:
        for n in range(biases):
            token = tl.load(bias_ids + row * biases + n)
            x += tl.where(ids == token, tl.load(bias_values + row * biases + n), 0.0)
    if HAS_PENALTIES:
        source = tl.load(count_rows + row)
        live = ids < tl.where(source >= 0, width, 0)
        count = tl.load(counts + source * width + ids, mask=live, other=0)
        for n in range(earliers):
            count += (ids == tl.load(earlier + row * earliers + n)).to(tl.int32)
        less = penalised(x, count, presence + row, frequency + row, repetition, row, True)
        x = tl.where(source >= 0, less, x)
    if HAS_ALLOWED:
        source = tl.load(allowed_rows + row)
        fits = is_allowed(ids, allowed + tl.maximum(source, 0) * words, words)
        x = tl.where(source >= 0, tl.where(fits, x, float("-inf")), x)
    return x


@triton.jit
def settle(
    row, settings, temperature, top_k, top_p, min_p, u, seeds, positions, purposes, limit,
    IS_SEEDED: tl.constexpr,
):  # fmt: skip
    """Lay out the settings of a row; a greedy one keeps its best candidate and has u = 0."""
    # A block of one: the interpreter warns of overflow in scalars.
    one = row + tl.arange(0, 1)
    heat = tl.load(temperature + one).to(tl.float64)
    is_greedy = heat <= 0
    heat = tl.where(is_greedy, 1.0, heat)
    scale = tl.minimum(tl.maximum(1.0 / heat, 1e-30), 1e30).to(tl.float32)
    keep = tl.load(top_k + one).to(tl.int64)
    keep = tl.where(is_greedy, 1, tl.where((keep > 0) & (keep < limit), keep, 0))
    if IS_SEEDED:
        bits = uniform_bits(tl.load(seeds + one), tl.load(positions + one), tl.load(purposes + one))
        place = bits.to(tl.float64) * (1.0 / 16777216.0)
    else:
        place = tl.load(u + one).to(tl.float64)
    nucleus, floor = tl.load(top_p + one).to(tl.float64), tl.load(min_p + one).to(tl.float64)
    to = settings + one * SETTINGS
    tl.store(to + HEAT, heat)
    tl.store(to + SCALE, scale.to(tl.float64))
    tl.store(to + KEEP, keep.to(tl.float64))
    tl.store(to + NUCLEUS, tl.where(is_greedy, 1.0, nucleus))
    tl.store(to + FLOOR, tl.where(is_greedy, 0.0, floor))
    tl.store(to + PLACE, tl.where(is_greedy, 0.0, place))


@triton.jit(do_not_specialize=["limit", "biases", "earliers", "words", "width"])
def prepare(
    logits,
    stride,
    limit,
    temperature,
    top_k,
    top_p,
    min_p,
    u,
    seeds,
    positions,
    purposes,
    bias_ids,
    bias_values,
    presence,
    frequency,
    repetition,
    counts,
    count_rows,
    earlier,
    allowed,
    allowed_rows,
    biases,  # pairs of a row
    earliers,  # ids of a row
    words,
    width,  # ids of a row of counts
    x_out,  # [R, limit] float32; not used without rules
    tops,  # [R, blocks] the best logit of each block, +inf if one cannot be used
    settings,
    bin_counts,
    bin_masses,
    found,  # [R, 2] int32
    BLOCK: tl.constexpr,
    IS_SEEDED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_PENALTIES: tl.constexpr,
    HAS_ALLOWED: tl.constexpr,
):
    """Rules, best logit of each block, settings; clears the counters. Grid (blocks, rows)."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    live = ids < limit
    x = tl.load(logits + row * stride + ids, mask=live, other=float("-inf")).to(tl.float32)
    if HAS_BIAS or HAS_PENALTIES or HAS_ALLOWED:
        x = ruled(
            x, ids, row, bias_ids, bias_values, presence, frequency, repetition, counts,
            count_rows, earlier, allowed, allowed_rows, biases, earliers, words, width,
            HAS_BIAS, HAS_PENALTIES, HAS_ALLOWED,
        )  # fmt: skip
        tl.store(x_out + row * limit + ids, x, mask=live)
    top = tl.max(tl.where(live, tl.where(x != x, float("inf"), x), float("-inf")))
    tl.store(tops + row * tl.num_programs(0) + block, top)
    if block == 0:
        settle(
            row, settings, temperature, top_k, top_p, min_p, u, seeds, positions, purposes, limit,
            IS_SEEDED,
        )  # fmt: skip
        tl.store(found + 2 * row + tl.arange(0, 2), tl.zeros((2,), tl.int32))
    if block < COPIES:
        to = (row * COPIES + block) * BINS + tl.arange(0, BINS)
        tl.store(bin_counts + to, tl.zeros((BINS,), tl.int32))
        tl.store(bin_masses + to, tl.zeros((BINS,), tl.int64))


@triton.jit
def best_of(tops, row, blocks, BLOCKS: tl.constexpr):
    """The best logit of a row, +inf if one cannot be used, and the least of the blocks' best."""
    place = tl.arange(0, BLOCKS)
    live = place < blocks
    top = tl.load(tops + row * blocks + place, mask=live, other=float("-inf"))
    return tl.max(top), tl.min(tl.where(live, top, float("inf")))
