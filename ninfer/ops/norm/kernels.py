"""Triton kernels of the normalisations: a program holds whole rows and passes over them once."""

import triton
import triton.language as tl

from ninfer.ops.elementwise.kernels import row_places, sigmoid

# What a row is multiplied with after it is normed.
PLAIN = tl.constexpr(0)
OFFSET = tl.constexpr(1)
GATED = tl.constexpr(2)
UNIT = tl.constexpr(3)


@triton.jit
def rounded(value, TO: tl.constexpr, CUTS: tl.constexpr):
    """float32 rounded to TO and back; CUTS: where a cast to bf16 would cut bits off."""
    if CUTS:
        word = value.to(tl.uint32, bitcast=True)
        word += 0x7FFF + ((word >> 16) & 1)
        return (word & 0xFFFF0000).to(tl.float32, bitcast=True)
    else:
        return value.to(TO).to(tl.float32)


@triton.jit(do_not_specialize=["rows", "B"])
def norm_rows(
    x,
    other,  # residual or gate
    weight,
    out,
    total,  # of x and the residual
    rows,
    B,
    D,
    x_strides,
    other_strides,
    eps,
    KIND: tl.constexpr,
    ADDS: tl.constexpr,
    TO: tl.constexpr,
    CUTS: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """RMS or L2 norm of R rows, with a sum before or a gate behind; grid (blocks of R rows,)."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.arange(0, BLOCK)
    live = (row < rows)[:, None] & (column < D)[None, :]
    v = tl.load(x + row_places(x_strides, row, B, column), mask=live, other=0.0).to(tl.float32)
    to = row.to(tl.int64)[:, None] * D + column[None, :]
    if ADDS:
        at = other + row_places(other_strides, row, B, column)
        v = rounded(v + tl.load(at, mask=live, other=0.0).to(tl.float32), TO, CUTS)
        tl.store(total + to, v, mask=live)
    size = tl.sum(v * v, 1)
    if KIND != UNIT:
        size /= D
    v *= (1.0 / tl.sqrt_rn(size + eps))[:, None]
    if KIND != UNIT:
        w = tl.load(weight + column, mask=column < D, other=0.0).to(tl.float32)
        if KIND == OFFSET:
            w += 1.0
        v *= w[None, :]
    if KIND == GATED:
        at = other + row_places(other_strides, row, B, column)
        gate = tl.load(at, mask=live, other=0.0).to(tl.float32)
        v *= gate * sigmoid(gate)
    tl.store(out + to, v, mask=live)
