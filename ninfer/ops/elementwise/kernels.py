"""Triton kernel of the elementwise ops of two tensors."""

import triton
import triton.language as tl

SILU_MUL = tl.constexpr(0)
SIGMOID_MUL = tl.constexpr(1)
ADD = tl.constexpr(2)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) in float32, without powers that overflow."""
    power = tl.exp(-tl.abs(x))
    return tl.where(x < 0, power, 1.0) / (1.0 + power)


@triton.jit
def row_places(strides, row, B, column):
    """Offsets [R, n] of columns in rows `row` [R] of [A, B, D] at two strides."""
    a, b = (row // B).to(tl.int64), row % B
    return (a * strides[0] + b * strides[1])[:, None] + column[None, :]


@triton.jit(do_not_specialize=["rows", "B"])
def combine_rows(
    x,
    y,
    out,
    rows,
    B,
    D,
    x_strides,
    y_strides,
    KIND: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """silu(x) * y, x * sigmoid(y) or x + y; grid (blocks of columns, blocks of R rows)."""
    row = tl.program_id(1) * R + tl.arange(0, R)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = (row < rows)[:, None] & (column < D)[None, :]
    u = tl.load(x + row_places(x_strides, row, B, column), mask=live, other=0.0).to(tl.float32)
    v = tl.load(y + row_places(y_strides, row, B, column), mask=live, other=0.0).to(tl.float32)
    if KIND == SILU_MUL:
        u = u * sigmoid(u) * v
    elif KIND == SIGMOID_MUL:
        u = u * sigmoid(v)
    else:
        u = u + v
    tl.store(out + row.to(tl.int64)[:, None] * D + column[None, :], u, mask=live)
