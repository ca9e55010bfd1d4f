"""Triton kernel of the routing: sums of splits, the best experts of a row, and their weights."""

import triton
import triton.language as tl

# Below the key of every number.
_TAKEN = tl.constexpr(-(1 << 31))


@triton.jit(do_not_specialize=["E", "stride", "split_stride"])
def choose_experts(
    logits,
    weights,
    ids,
    score,
    E,
    stride,
    split_stride,
    SPLITS: tl.constexpr,
    TOP_K: tl.constexpr,
    KP: tl.constexpr,  # a power of two that holds TOP_K
    EP: tl.constexpr,  # one that holds all experts
    IS_SCORED: tl.constexpr,  # whether column E is the shared expert's score
):
    """Top k of the sums of splits [SPLITS, T, E], or with one column more; grid (tokens,)."""
    t = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, EP)
    total = tl.zeros((EP,), tl.float32)
    for split in tl.static_range(SPLITS):
        at = logits + split * split_stride + t * stride + e
        total += tl.load(at, mask=e < E, other=0.0).to(tl.float32)
    if IS_SCORED:
        last = tl.zeros((), tl.float32)
        for split in tl.static_range(SPLITS):
            last += tl.load(logits + split * split_stride + t * stride + E)
        tl.store(score + t, last)
    # Whole numbers in the order of the logits; -0 is 0.
    bits = tl.where(total == 0.0, 0.0, total).to(tl.int32, bitcast=True)
    key = tl.where(e < E, bits ^ ((bits >> 31) & 0x7FFFFFFF), _TAKEN)
    slot = tl.arange(0, KP)
    chosen = tl.zeros((KP,), tl.int32)
    value = tl.full((KP,), float("-inf"), tl.float32)
    for rank in range(TOP_K):
        best = tl.max(key, 0)
        first = tl.min(tl.where(key == best, e, EP), 0)
        key = tl.where(e == first, _TAKEN, key)
        best = best ^ ((best >> 31) & 0x7FFFFFFF)
        value = tl.where(slot == rank, best.to(tl.float32, bitcast=True), value)
        chosen = tl.where(slot == rank, first, chosen)
    share = tl.exp(value - tl.max(value, 0))
    share /= tl.sum(share, 0)
    tl.store(weights + t * TOP_K + slot, share, mask=slot < TOP_K)
    tl.store(ids + t * TOP_K + slot, chosen.to(tl.int64), mask=slot < TOP_K)
