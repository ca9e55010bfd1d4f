"""Which few logits of a row decide, found by bins of their values, in Triton."""

import triton
import triton.language as tl

from ninfer.ops.sampling.kernels.bins import (
    ALL,
    BINS,
    COPIES,
    FLOOR,
    HEAT,
    KEEP,
    LOW,
    LOW_KEEP,
    NUCLEUS,
    PLACE,
    SCALE,
    SETTINGS,
    bins_of,
    drawn_at,
    reached,
    weights_of,
)
from ninfer.ops.sampling.kernels.prepare import best_of


@triton.jit
def put_range(to, holds):
    """Store the first and last bin of a range; none: a first one behind the last."""
    bins = tl.arange(0, BINS)
    tl.store(to, tl.min(tl.where(holds, bins, BINS)))
    tl.store(to + 1, tl.max(tl.where(holds, bins, -1)))


@triton.jit
def choose_bins(own, count, mass, ranges):
    """The ranges of bins that decide: those where top-k, top-p, min-p and the draw may fall.

    The exact weight behind a cut is known once the logits of its bin are; until then it lies
    between the weights before and behind that bin, and so does all that follows from it. Stores
    four pairs of first and last bin, and the least weights of the top-k and of all that is kept.
    """
    bins = tl.arange(0, BINS)
    keep = tl.load(own + KEEP).to(tl.int64)
    nucleus, floor, u = tl.load(own + NUCLEUS), tl.load(own + FLOOR), tl.load(own + PLACE)
    counts = tl.cumsum(count, 0).to(tl.int64)
    upto = tl.cumsum(mass, 0)
    before = upto - mass
    total = tl.sum(mass)
    has_mass = mass > 0
    # Top-k: the bin of the last candidate kept. One without weight needs no look.
    holds = (counts - count < keep) & (keep <= counts)
    is_cut = tl.sum(holds.to(tl.int32)) > 0
    low = tl.where(is_cut, tl.sum(tl.where(holds, before, 0)), total)
    high = tl.where(is_cut, tl.sum(tl.where(holds, upto, 0)), total)
    k_low = low
    put_range(ranges, holds & has_mass)
    # Top-p: the bins in which the running weight may reach its share.
    nucleus_at = tl.where(nucleus < 1, reached(tl.minimum(nucleus, 1.0), low), ALL)
    holds = (upto >= nucleus_at) & has_mass
    holds = holds & ((before < reached(nucleus, high)) | (before == 0))
    put_range(ranges + 2, holds)
    is_cut = tl.sum(holds.to(tl.int32)) > 0
    p_low = tl.min(tl.where(holds, before, total))
    p_high = tl.max(tl.where(holds, upto, 0))
    low = tl.where(is_cut, tl.minimum(low, p_low), low)
    high = tl.where(is_cut, tl.minimum(high, p_high), high)
    # Min-p: the bin of that weight, and its neighbours for the rounding of the logarithm.
    edge = -tl.log(tl.maximum(floor, 1e-300)).to(tl.float32)
    middle = tl.where(floor > 0, bins_of(-tl.maximum(edge, 0.0), 0.0, 1.0), -2)
    holds = (bins >= middle - 1) & (bins <= middle + 1) & has_mass
    put_range(ranges + 4, holds)
    m_low = tl.sum(tl.where(bins < middle - 1, mass, 0))
    m_high = tl.sum(tl.where(bins <= middle + 1, mass, 0))
    low = tl.where(floor > 0, tl.minimum(low, m_low), low)
    high = tl.where(floor > 0, tl.minimum(high, m_high), high)
    # The draw.
    holds = (upto > drawn_at(u, low)) & (before <= drawn_at(u, high)) & has_mass
    put_range(ranges + 6, holds)
    tl.store(own + LOW_KEEP, k_low.to(tl.float64, bitcast=True))
    tl.store(own + LOW, low.to(tl.float64, bitcast=True))


@triton.jit(do_not_specialize=["limit"])
def count_bins(
    x,
    stride,
    limit,
    tops,
    settings,
    bin_counts,  # [R, COPIES, BINS]
    bin_masses,
    counts_before,  # [R, BINS] int32
    masses_before,  # [R, BINS] int64
    ranges,  # [R, 8] int32
    found,  # [R, 2] int32, the second one counts finished blocks
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,  # a power of two, at least the blocks of a row
):
    """Logits and weights of each bin, then where to look; grid (blocks, rows)."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    best, least = best_of(tops, row, tl.num_programs(0), BLOCKS)
    own = settings + row * SETTINGS
    keep = tl.load(own + KEEP).to(tl.int64)
    # As many logits as blocks are not below `least`, so the best `keep` are among those.
    least = tl.where((keep > 0) & (keep <= tl.num_programs(0)), least, float("-inf"))
    # Nothing compares with NaN: a row that cannot be used has no candidates.
    is_usable = (best < float("inf")) & (best > float("-inf"))
    least = tl.where(is_usable, least, float("nan"))
    best = tl.where(is_usable, best, 0.0)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + ids, mask=ids < limit, other=float("-inf")).to(tl.float32)
    live = (value >= least) & (value > float("-inf"))
    # Other lanes take the best logit, so that no arithmetic meets an infinity.
    value = tl.where(live, value, best)
    bins = bins_of(value, best, tl.load(own + SCALE).to(tl.float32))
    weight = weights_of(value, best, tl.load(own + HEAT))
    to = (row * COPIES + block % COPIES) * BINS + bins
    bins = tl.where(live, bins, BINS)
    tl.atomic_add(bin_counts + to, 1, mask=bins < tl.where(keep > 0, BINS, 0), sem="relaxed")
    tl.atomic_add(bin_masses + to, weight, mask=live & (weight > 0), sem="relaxed")
    # The last block to finish sees the sums of all.
    tl.debug_barrier()
    finished = tl.atomic_add(found + 2 * row + 1, 1, sem="acq_rel")
    if finished == tl.num_programs(0) - 1:
        count, mass = tl.zeros((BINS,), tl.int32), tl.zeros((BINS,), tl.int64)
        # Copies that no block has are not cleared either.
        for copy in range(tl.minimum(tl.num_programs(0), COPIES)):
            from_copy = (row * COPIES + copy) * BINS + tl.arange(0, BINS)
            count += tl.load(bin_counts + from_copy)
            mass += tl.load(bin_masses + from_copy)
        to = row * BINS + tl.arange(0, BINS)
        tl.store(counts_before + to, tl.cumsum(count, 0) - count)
        tl.store(masses_before + to, tl.cumsum(mass, 0) - mass)
        choose_bins(own, count, mass, ranges + 8 * row)


@triton.jit(do_not_specialize=["limit"])
def gather(
    x,
    stride,
    limit,
    tops,
    settings,
    ranges,
    found,  # [R, 2] int32, the first one counts logits of the bins in question
    values,  # [R, room] float32, some of them in any order
    ids_out,  # [R, room] int32
    weights,  # [R, room] int64
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    ROOM: tl.constexpr,
):
    """Collect the logits of the bins that decide; grid (blocks, rows)."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    best, _ = best_of(tops, row, tl.num_programs(0), BLOCKS)
    if (best < float("inf")) & (best > float("-inf")):
        own = settings + row * SETTINGS
        ids = block * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + row * stride + ids, mask=ids < limit, other=float("-inf"))
        value = value.to(tl.float32)
        live = value > float("-inf")
        value = tl.where(live, value, best)
        at = bins_of(value, best, tl.load(own + SCALE).to(tl.float32))
        hit = at < 0
        for n in tl.static_range(4):
            first = tl.load(ranges + 8 * row + 2 * n)
            last = tl.load(ranges + 8 * row + 2 * n + 1)
            hit = hit | ((at >= first) & (at <= last))
        hit = hit & live
        hits = tl.sum(hit.to(tl.int32))
        if hits > 0:
            start = tl.atomic_add(found + 2 * row, hits, sem="relaxed")
            place = start + tl.cumsum(hit.to(tl.int32), 0) - 1
            hit = hit & (place < ROOM)
            to = row * ROOM + place
            tl.store(values + to, value, mask=hit)
            tl.store(ids_out + to, ids, mask=hit)
            tl.store(weights + to, weights_of(value, best, tl.load(own + HEAT)), mask=hit)
