"""Triton kernel of attention inside slices: every row over all rows of its own slice."""

import triton
import triton.language as tl

from ninfer.ops.attention.tiles import DIRECT, attend_tile, load_queries, no_sums


@triton.jit(do_not_specialize=["length"])
def attend_slices(
    q,
    k,
    v,
    out,  # [P, H, D]
    length,
    scale,  # times log2(e)
    q_row,  # strides
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    R: tl.constexpr,
    BN: tl.constexpr,
    DIM: tl.constexpr,
    W: tl.constexpr,
    CHUNKS: tl.constexpr,
    OPERAND: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A tile of R rows of one head; grid (tiles of a slice, slices, heads)."""
    head = tl.program_id(2)
    first = tl.program_id(1).to(tl.int64) * length
    place = tl.program_id(0) * R + tl.arange(0, R)
    inside = place < length
    row = first + place
    rows_q = load_queries(q + row * q_row + head * q_head, inside, DIM, W, CHUNKS, 1, OPERAND)
    top = tl.full((R,), float("-inf"), tl.float32)
    weight = tl.zeros((64, R), tl.float32)
    sums = no_sums(W, R, CHUNKS)
    n = tl.arange(0, BN)
    no_row = tl.zeros((BN, R), tl.int1)
    full = length // BN * BN
    for at in tl.range(0, full, BN, num_stages=STAGES):
        key = first + at + n
        top, weight, sums = attend_tile(
            rows_q, top, weight, sums, k, v, k, v,
            key * k_row + head * k_head, key * v_row + head * v_head, key, n >= 0, no_row, scale,
            DIM, W, CHUNKS, 0, False, 1, DIRECT, OPERAND, False,
        )  # fmt: skip
    if full < length:
        live = full + n < length
        key = first + full + n
        top, weight, sums = attend_tile(
            rows_q, top, weight, sums, k, v, k, v,
            key * k_row + head * k_head, key * v_row + head * v_head, key,
            live, live[:, None] & (place >= 0)[None, :], scale,
            DIM, W, CHUNKS, 0, False, 1, DIRECT, OPERAND, True,
        )  # fmt: skip
    total = tl.max(weight, 0)
    to = out + (row * tl.num_programs(2) + head) * DIM
    for c in tl.static_range(CHUNKS):
        column = c * W + tl.arange(0, W)[:, None]
        mask = inside[None, :] & (column < DIM)
        tl.store(to[None, :] + column, sums[c] / total[None, :], mask=mask)
