"""The last launches of a draw: the logits that decide are ranked, cut and drawn from."""

import triton
import triton.language as tl

from ninfer.ops.sampling.kernels.bins import (
    ALL,
    BINS,
    FLOOR,
    HEAT,
    KEEP,
    LOW,
    LOW_KEEP,
    NUCLEUS,
    PLACE,
    SCALE,
    SETTINGS,
    WEIGHT_ONE,
    bins_of,
    drawn_at,
    reached,
)
from ninfer.ops.sampling.kernels.exhaustive import draw_from_all
from ninfer.ops.sampling.kernels.prepare import best_of

_NONE = tl.constexpr(0x7FFFFFFF)


@triton.jit
def rank(
    tops,
    blocks,
    settings,
    counts_before,
    masses_before,
    found,
    values,
    ids,
    weights,
    ranks,  # [R, room] int32, candidates before each one
    running,  # [R, room] int64, weight up to each one with its own
    BLOCKS: tl.constexpr,
    ROOM: tl.constexpr,
    OWN: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """Place and running weight of the collected logits; grid (parts, rows)."""
    row = tl.program_id(1).to(tl.int64)
    count = tl.load(found + 2 * row)
    count = tl.where(count <= ROOM, count, 0)
    if tl.program_id(0) * OWN < count:
        best, _ = best_of(tops, row, blocks, BLOCKS)
        scale = tl.load(settings + row * SETTINGS + SCALE).to(tl.float32)
        for first in range(tl.program_id(0) * OWN, count, tl.num_programs(0) * OWN):
            i = first + tl.arange(0, OWN)
            live = i < count
            value = tl.load(values + row * ROOM + i, mask=live, other=0.0)
            value = tl.where(live, value, best)
            own_id = tl.load(ids + row * ROOM + i, mask=live, other=0)
            own_bin = bins_of(value, best, scale)
            places = tl.load(counts_before + row * BINS + own_bin)
            mass = tl.load(masses_before + row * BINS + own_bin)
            for start in range(0, count, OTHERS):
                j = start + tl.arange(0, OTHERS)
                is_other = j < count
                other = tl.load(values + row * ROOM + j, mask=is_other, other=0.0)
                other_id = tl.load(ids + row * ROOM + j, mask=is_other, other=_NONE)
                # A lane behind the last is in no bin.
                other_bin = tl.where(is_other, bins_of(other, best, scale), -1)
                weight = tl.load(weights + row * ROOM + j, mask=is_other, other=0)
                is_equal = other[None, :] == value[:, None]
                is_upto = is_equal & (other_id[None, :] <= own_id[:, None])
                is_upto = is_upto | (other[None, :] > value[:, None])
                is_upto = is_upto & (other_bin[None, :] == own_bin[:, None])
                places += tl.sum(is_upto.to(tl.int32), 1)
                mass += tl.sum(tl.where(is_upto, weight[None, :], 0), 1)
            tl.store(ranks + row * ROOM + i, places - 1, mask=live)
            tl.store(running + row * ROOM + i, mass, mask=live)


@triton.jit
def kept_mass(
    row, count, low, keep, nucleus_at, floor, ranks, running, weights,
    ROOM: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Weight of all candidates that the given cuts keep, `low` if no collected one is the last."""
    mass = low
    keep = tl.where(keep > 0, keep, ALL)
    for start in range(0, count, CHUNK):
        i = start + tl.arange(0, CHUNK)
        live = i < count
        upto = tl.load(running + row * ROOM + i, mask=live, other=0)
        weight = tl.load(weights + row * ROOM + i, mask=live, other=0)
        place = tl.load(ranks + row * ROOM + i, mask=live, other=0)
        before = upto - weight
        kept = (before < nucleus_at) & (weight.to(tl.float64) >= floor * WEIGHT_ONE)
        kept = live & (kept | (before == 0)) & (place < keep)
        mass = tl.maximum(mass, tl.max(tl.where(kept, upto, 0)))
    return mass


@triton.jit
def draw_from_few(
    row, count, own, ids, weights, ranks, running, ROOM: tl.constexpr, CHUNK: tl.constexpr
):
    """The draw of a row whose decisive logits were all collected."""
    keep = tl.load(own + KEEP).to(tl.int64)
    nucleus, floor = tl.load(own + NUCLEUS), tl.load(own + FLOOR)
    mass = kept_mass(
        row, count, tl.load(own + LOW_KEEP).to(tl.int64, bitcast=True), keep, ALL, 0.0,
        ranks, running, weights, ROOM, CHUNK,
    )  # fmt: skip
    nucleus_at = tl.where(nucleus < 1, reached(tl.minimum(nucleus, 1.0), mass), ALL)
    mass = kept_mass(
        row, count, tl.load(own + LOW).to(tl.int64, bitcast=True), keep, nucleus_at, floor,
        ranks, running, weights, ROOM, CHUNK,
    )  # fmt: skip
    target = drawn_at(tl.load(own + PLACE), mass)
    token = -1
    for start in range(0, count, CHUNK):
        i = start + tl.arange(0, CHUNK)
        live = i < count
        upto = tl.load(running + row * ROOM + i, mask=live, other=0)
        weight = tl.load(weights + row * ROOM + i, mask=live, other=0)
        hit = live & (upto - weight <= target) & (target < upto)
        token_id = tl.load(ids + row * ROOM + i, mask=hit, other=-1)
        token = tl.maximum(token, tl.max(token_id))
    return token


@triton.jit(do_not_specialize=["limit"])
def decide(
    x,
    stride,
    limit,
    tops,
    blocks,
    settings,
    scratch,  # [R, BINS] int64
    found,
    ids,
    weights,
    ranks,
    running,
    out,  # [R] int64
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    ROOM: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Cut and draw; a row with too many logits in question is looked through whole. Grid (rows,)"""
    row = tl.program_id(0).to(tl.int64)
    best, _ = best_of(tops, row, blocks, BLOCKS)
    token = -1
    if (best < float("inf")) & (best > float("-inf")):
        own = settings + row * SETTINGS
        count = tl.load(found + 2 * row)
        if count <= ROOM:
            token = draw_from_few(row, count, own, ids, weights, ranks, running, ROOM, CHUNK)
        else:
            token = draw_from_all(
                x + row * stride,
                limit,
                best,
                tl.load(own + HEAT),
                tl.load(own + KEEP).to(tl.int64),
                tl.load(own + NUCLEUS),
                tl.load(own + FLOOR),
                tl.load(own + PLACE),
                scratch + row * BINS,
                BLOCK,
            )
    tl.store(out + row, token.to(tl.int64))
