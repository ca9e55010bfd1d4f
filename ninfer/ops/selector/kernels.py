"""Triton kernels of choosing drafts: scores of edges and their softmax."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rank"])
def score_edges(
    logits,
    logits_stride,
    ids,
    previous,
    gate,
    gate_stride,
    predecessors,
    predecessors_stride,
    successors,
    successors_stride,
    out,
    candidates,
    rank,
    CANDIDATES: tl.constexpr,  # of a program
    RANKS: tl.constexpr,  # of a pass
):
    """Logit plus bilinear score of each candidate, sums in float32; grid (parts, rows)."""
    row = tl.program_id(1).to(tl.int64)
    c = tl.program_id(0) * CANDIDATES + tl.arange(0, CANDIDATES)
    live = c < candidates
    token = tl.load(ids + row * candidates + c, mask=live, other=0)
    before = predecessors + tl.load(previous + row) * predecessors_stride
    score = tl.zeros((CANDIDATES,), tl.float32)
    for start in range(0, rank, RANKS):
        r = start + tl.arange(0, RANKS)
        inside = r < rank
        left = tl.load(before + r, mask=inside, other=0.0).to(tl.float32)
        left *= tl.load(gate + row * gate_stride + r, mask=inside, other=0.0).to(tl.float32)
        at = token[:, None] * successors_stride + r[None, :]
        right = tl.load(successors + at, mask=live[:, None] & inside[None, :], other=0.0)
        score += tl.sum(left[None, :] * right.to(tl.float32), 1)
    own = tl.load(logits + row * logits_stride + c, mask=live, other=0.0).to(tl.float32)
    tl.store(out + row * candidates + c, score + own, mask=live)


@triton.jit
def soften(scores, stride, temperature, out, count, COUNT: tl.constexpr):
    """Softmax at a temperature, in float64; grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, COUNT)
    live = c < count
    x = tl.load(scores + row * stride + c, mask=live, other=float("-inf")).to(tl.float64)
    heat = tl.load(temperature + row).to(tl.float64)
    best = tl.max(x)
    first = tl.min(tl.where(x == best, c, COUNT))
    # The largest score becomes 0 first, so that a tiny temperature cannot overflow.
    power = tl.exp((x - best) / tl.where(heat > 0, heat, 1.0))
    law = tl.where(heat > 0, power / tl.sum(power), (c == first).to(tl.float64))
    tl.store(out + row * count + c, law.to(tl.float32), mask=live)
