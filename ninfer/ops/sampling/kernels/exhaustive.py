"""The draw from a row of which no few logits decide: one program goes over all of it, in Triton.

Rows with tens of thousands of (nearly) equal logits come here. Candidates are found digit by digit
of their 32-bit keys: eleven bits of all keys with the digits found so far are counted, or their
weights added up, and the digit taken in which the running sum passes its target.
"""

import triton
import triton.language as tl

from ninfer.ops.sampling.kernels.bins import (
    BINS,
    WEIGHT_ONE,
    drawn_at,
    keys_of,
    logit_of,
    reached,
    weights_of,
)


@triton.jit
def _part(x, start, limit, best, heat, BLOCK: tl.constexpr):
    """Ids, which are live, keys and weights of a part of the row."""
    ids = start + tl.arange(0, BLOCK)
    live = ids < limit
    value = tl.load(x + ids, mask=live, other=float("-inf")).to(tl.float32)
    weight = tl.where(live, weights_of(value, best, heat), 0)
    return ids, live, keys_of(value), weight


@triton.jit
def _digit(
    x, limit, best, heat, target, prefix, before, scratch,
    SHIFT: tl.constexpr, WIDTH: tl.constexpr, IS_COUNT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The prefix of the passing key with one digit more, and the sum before all such keys."""
    digits = tl.arange(0, BINS)
    tl.store(scratch + digits, tl.zeros((BINS,), tl.int64))
    tl.debug_barrier()
    for start in range(0, limit, BLOCK):
        _, live, key, weight = _part(x, start, limit, best, heat, BLOCK)
        hit = live & ((key >> (SHIFT + WIDTH)) == prefix)
        amount = tl.full((BLOCK,), 1, tl.int64) if IS_COUNT else weight
        digit = (key >> SHIFT) & ((1 << WIDTH) - 1)
        tl.atomic_add(scratch + digit, amount, mask=hit & (amount > 0), sem="relaxed")
    tl.debug_barrier()
    sums = tl.load(scratch + digits)
    tl.debug_barrier()
    digit = tl.sum((tl.cumsum(sums, 0) <= target - before).to(tl.int64))
    before += tl.sum(tl.where(digits < digit, sums, 0))
    return (prefix << WIDTH) + digit, before


@triton.jit
def _passing(x, limit, best, heat, target, scratch, IS_COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """The key at which the running count or weight exceeds target, and the sum before that key."""
    key = tl.zeros((), tl.int64)
    before = tl.zeros((), tl.int64)
    key, before = _digit(
        x, limit, best, heat, target, key, before, scratch, 21, 11, IS_COUNT, BLOCK
    )
    key, before = _digit(
        x, limit, best, heat, target, key, before, scratch, 10, 11, IS_COUNT, BLOCK
    )
    return _digit(x, limit, best, heat, target, key, before, scratch, 0, 10, IS_COUNT, BLOCK)


@triton.jit
def draw_from_all(x, limit, best, heat, keep, nucleus, floor, u, scratch, BLOCK: tl.constexpr):
    """The token of the row at x whose largest logit is best; scratch [BINS] int64."""
    last = tl.full((), 0xFFFFFFFF, tl.int64)
    mass = tl.zeros((), tl.int64)
    # Weight of the top-k: of all better keys, and of as many of the last key as it takes.
    if keep > 0:
        last, counted = _passing(x, limit, best, heat, keep - 1, scratch, True, BLOCK)
        mass += (keep - counted) * weights_of(logit_of(last), best, heat)
    heavy = tl.zeros((), tl.int64)
    for start in range(0, limit, BLOCK):
        _, _, key, weight = _part(x, start, limit, best, heat, BLOCK)
        mass += tl.sum(tl.where(key < last, weight, 0))
        heavy += tl.sum(tl.where(weight.to(tl.float64) >= floor * WEIGHT_ONE, weight, 0))
    # A min-p above 1 leaves the best candidate.
    heavy = tl.where(floor > 1, WEIGHT_ONE, heavy)
    kept = tl.minimum(mass, heavy)
    if nucleus < 1:
        target = tl.maximum(reached(nucleus, mass) - 1, 0)
        key, before = _passing(x, limit, best, heat, target, scratch, False, BLOCK)
        weight = weights_of(logit_of(key), best, heat)
        kept = tl.minimum(kept, before + ((target - before) // weight + 1) * weight)
    target = drawn_at(u, kept)
    drawn, before = _passing(x, limit, best, heat, target, scratch, False, BLOCK)
    place = (target - before) // weights_of(logit_of(drawn), best, heat)
    # The token is the place-th of the equal ones, by id.
    token = tl.full((), -1, tl.int32)
    seen = tl.zeros((), tl.int64)
    for start in range(0, limit, BLOCK):
        ids, live, key, _ = _part(x, start, limit, best, heat, BLOCK)
        equal = (live & (key == drawn)).to(tl.int64)
        index = seen + tl.cumsum(equal, 0) - 1
        token = tl.maximum(token, tl.max(tl.where((equal > 0) & (index == place), ids, -1)))
        seen += tl.sum(equal)
    return token
