"""Contract of the vision tower's ops: biased products, layer norm, positions, slice attention."""

from typing import Final, Literal

import torch
from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.tensors import Weight
from ninfer.ops.vision import reference

Activation = Literal["none", "gelu_tanh", "gelu_erf"]

_LINEAR_BIAS: Final = Route(reference.linear_bias)
_LAYER_NORM: Final = Route(reference.layer_norm)
_GRID_POSITIONS: Final = Route(reference.grid_positions)
_ROPE_2D: Final = Route(reference.rope_2d)
_SLICE_ATTENTION: Final = Route(reference.slice_attention)


def linear_bias(
    x: Tensor, weight: Weight, bias: Tensor, *, activation: Activation = "none"
) -> Tensor:
    """act(x @ weight^T + bias), accumulated in float32, rounded once after the activation.

    `gelu_erf` is u/2 * (1 + erf(u / sqrt 2)); `gelu_tanh` is its usual approximation
    u/2 * (1 + tanh(sqrt(2 / pi) * (u + 0.044715 u^3))).
    Shapes: x [P, K], weight [N, K] dense or packed, bias [N] -> [P, N] in the type of x. Raises
    ValueError for shapes that disagree and for an unknown activation.
    """
    checks.activation("linear_bias", "x", x, 2)
    checks.weight_matrix("linear_bias", "weight", weight, x, columns=x.shape[1])
    checks.shaped("linear_bias", "bias", bias, (weight.shape[0],), x)
    if activation not in ("none", "gelu_tanh", "gelu_erf"):
        raise checks.wrong("linear_bias", "activation", activation, "none, gelu_tanh or gelu_erf")
    return _LINEAR_BIAS.run(x, weight, bias, activation=activation)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dim, var without Bessel's.

    Shapes: x [..., D], weight and bias [D] -> [..., D] in the type of x. Raises ValueError for
    shapes that disagree.
    """
    checks.activation("layer_norm", "x", x)
    checks.shaped("layer_norm", "weight", weight, x.shape[-1:], x)
    checks.shaped("layer_norm", "bias", bias, x.shape[-1:], x)
    return _LAYER_NORM.run(x, weight, bias, eps=eps)


def grid_positions(
    table: Tensor, grid: tuple[int, int, int], *, merge: int, dtype: torch.dtype
) -> Tensor:
    """Position embeddings of a grid of patches, bilinear between the cells of a square table.

    The table is read as [S, S, D]; patch row r of H samples it at r * (S - 1) / (H - 1) (0 when H
    is 1), columns alike. Rows come in merge-block order (block row, block column, row and column
    inside) and repeat for every time step.
    Shapes: table [S * S, D], grid (T, H, W) in patches -> [T * H * W, D] of `dtype`. Raises
    ValueError when the table is not square or `merge` does not divide H and W.
    """
    checks.activation("grid_positions", "table", table, 2)
    side = round(table.shape[0] ** 0.5)
    if side * side != table.shape[0]:
        raise checks.wrong("grid_positions", "table", f"of {table.shape[0]} rows", "square")
    _, height, width = grid
    if min(grid) < 1 or merge < 1 or height % merge or width % merge:
        raise checks.wrong("grid_positions", "grid", grid, f"positive multiples of {merge}")
    return _GRID_POSITIONS.run(table, grid, merge=merge, dtype=dtype)


def rope_2d(x: Tensor, positions: Tensor, *, theta: float) -> Tensor:
    """Rotate every head by the row and the column of its patch.

    With q = D / 4, pair i = (x[i], x[i + 2q]) turns by the angle
    positions[i // q] * theta^(-(i mod q) / q): the first half of the pairs by row, the rest by
    column. Angles are float64.
    Shapes: x [P, H, D], positions [2, P] int64 -> [P, H, D] in the type of x. Raises ValueError
    for other shapes and for a D that is not a multiple of 4.
    """
    checks.activation("rope_2d", "x", x, 3)
    checks.indices("rope_2d", "positions", positions, (2, x.shape[0]), x)
    if x.shape[2] % 4:
        raise checks.wrong("rope_2d", "x", f"of {x.shape[2]} head dims", "of a multiple of 4")
    return _ROPE_2D.run(x, positions, theta=theta)


def slice_attention(q: Tensor, k: Tensor, v: Tensor, *, length: int, scale: float) -> Tensor:
    """softmax(scale * q K^T) V, every row over all rows of its own slice and no others.

    Slice s holds rows s * length to (s + 1) * length. Scores and softmax are float32.
    Shapes: q, k, v [P, H, D] -> [P, H, D] in the type of q. Raises ValueError for shapes that
    disagree and when `length` does not divide P.
    """
    checks.activation("slice_attention", "q", q, 3)
    checks.twin("slice_attention", "k", k, q)
    checks.twin("slice_attention", "v", v, q)
    if length < 1 or q.shape[0] % length:
        wanted = f"of a multiple of {length} rows, at least 1 each"
        raise checks.wrong("slice_attention", "q", f"of {q.shape[0]} rows", wanted)
    return _SLICE_ATTENTION.run(q, k, v, length=length, scale=scale)
