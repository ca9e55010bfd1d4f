"""Triton kernels that take the best of a row one after another, in parts and then of the parts.

The order is by value, lower id first on ties. Each step looks for the best entry behind the one
before, so nothing has to be remembered but that one. Equal or infinite logits cost nothing extra.
"""

import triton
import triton.language as tl

# Behind every id.
NO_ID = tl.constexpr((1 << 63) - 1)


@triton.jit
def _behind(value, ids, last, last_id):
    """The best entry behind (last, last_id), and its id."""
    follows = (value < last) | ((value == last) & (ids > last_id))
    best = tl.max(tl.where(follows, value, float("-inf")))
    return best, tl.min(tl.where(follows & (value == best), ids, NO_ID))


@triton.jit(do_not_specialize=["limit", "count"])
def best_of_blocks(
    x,
    stride,
    limit,
    ids,  # [limit] int64, or None where column i has id i
    count,
    values,  # [R, blocks, count] float32
    found,  # [R, blocks, count] int64
    HAS_IDS: tl.constexpr,
    NAN: tl.constexpr,  # what NaN counts as: 1 +inf, -1 -inf
    BLOCK: tl.constexpr,
):
    """The best `count` of each block, best first; grid (blocks, rows)."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    column = block * BLOCK + tl.arange(0, BLOCK)
    live = column < limit
    value = tl.load(x + row * stride + column, mask=live, other=float("-inf")).to(tl.float32)
    value = tl.where(value != value, NAN * float("inf"), value)
    if HAS_IDS:
        own = tl.load(ids + column, mask=live, other=NO_ID)
    else:
        own = tl.where(live, column.to(tl.int64), NO_ID)
    last, last_id = tl.full((), float("inf"), tl.float32), tl.full((), -1, tl.int64)
    to = (row * tl.num_programs(0) + block) * count
    for n in range(count):
        last, last_id = _behind(value, own, last, last_id)
        tl.store(values + to + n, last)
        tl.store(found + to + n, last_id)


@triton.jit(do_not_specialize=["entries", "count"])
def best_of_rows(
    values,
    found,
    entries,  # of a row
    count,
    out_values,  # [R, count]
    out_ids,  # [R, count] int64
    MARK: tl.constexpr,  # give id -1 and NaN where the best is not finite
    ENTRIES: tl.constexpr,
    IS_WHOLE: tl.constexpr,  # all entries of a row in one load
):
    """The best `count` of what the blocks of each row found; grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, ENTRIES)
    value = tl.load(values + row * entries + place, mask=place < entries, other=float("-inf"))
    own = tl.load(found + row * entries + place, mask=place < entries, other=NO_ID)
    last, last_id = tl.full((), float("inf"), tl.float32), tl.full((), -1, tl.int64)
    first = tl.zeros((), tl.float32)
    for n in range(count):
        best, best_id = _behind(value, own, last, last_id)
        if not IS_WHOLE:
            for start in range(ENTRIES, entries, ENTRIES):
                live = start + place < entries
                at = row * entries + start + place
                more = tl.load(values + at, mask=live, other=float("-inf"))
                more_ids = tl.load(found + at, mask=live, other=NO_ID)
                other, other_id = _behind(more, more_ids, last, last_id)
                is_better = (other > best) | ((other == best) & (other_id < best_id))
                best = tl.where(is_better, other, best)
                best_id = tl.where(is_better, other_id, best_id)
        last, last_id = best, best_id
        if MARK:
            first = tl.where(n == 0, best, first)
            is_usable = (first < float("inf")) & (first > float("-inf"))
            best = tl.where(is_usable, best, float("nan"))
            best_id = tl.where(is_usable, best_id, -1)
        tl.store(out_values + row * count + n, best)
        tl.store(out_ids + row * count + n, best_id)
