"""Arithmetic of the reference ops in which a row's result does not depend on the rows beside it.

Libraries pick another kernel, with another order of sums, for very few rows, and vector code rounds
exponentials unlike the scalar code that finishes a run. So products never have fewer than MIN_ROWS
rows or two columns, and pointwise functions run on whole vectors. That a library then keeps one
order for every row count is checked by tests, on the CPUs that run them.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

MIN_ROWS: Final = 4
# Lanes of two of the widest vectors; the last dimension of a pointwise function is a multiple.
_LANES: Final = 32


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x [T, K] @ weight [N, K]^T as [T, N], in one number type."""
    count, width = x.shape[0], weight.shape[0]
    if not count:
        return x.new_zeros((0, width))
    if width == 1:
        weight = pad(weight, (0, 0, 0, 1))
    return torch.mm(with_rows(x), weight.t())[:count, :width]


def with_rows(x: Tensor) -> Tensor:
    """x [..., R, K] with rows of zeros behind it, at least MIN_ROWS in all."""
    missing = MIN_ROWS - x.shape[-2]
    return pad(x, (0, 0, 0, missing)) if missing > 0 else x


def pointwise(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """function(x), for a function of single numbers; x [..., D]."""
    width = x.shape[-1]
    if width % _LANES == 0:
        return function(x)
    return function(pad(x, (0, -width % _LANES)))[..., :width]
