"""Arithmetic of the reference ops in which a row's result does not depend on the rows beside it.

Libraries pick another kernel, with another order of sums, for few rows, and vector code rounds
exponentials unlike the scalar code that finishes a run. So products never have fewer rows than it
takes on this machine (`least_rows`) or fewer than two columns, and pointwise functions run on
whole vectors.
"""

from collections.abc import Callable
from functools import cache
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

# Row counts from which a library may keep one order, and matrices [N, K] it is tried on.
_CANDIDATES: Final = (1, 4, 16, 64)
_TRIALS: Final = ((2, 64), (3, 384), (48, 384), (257, 128), (1000, 100), (384, 1536), (2048, 384))
_TRIAL_ROWS: Final = 160
# Attention's small products, which have no row count of their own.
_ATTENTION_ROWS: Final = 4
# Lanes of two of the widest vectors; the last dimension of a pointwise function is a multiple.
_LANES: Final = 32
# Numbers from which torch gives a pointwise function another thread.
_SHARE: Final = 32768


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x [T, K] @ weight [N, K]^T as [T, N], in one number type."""
    count, width = x.shape[0], weight.shape[0]
    if not count:
        return x.new_zeros((0, width))
    if width == 1:
        weight = pad(weight, (0, 0, 0, 1))
    across, least = weight.t(), least_rows() if x.device.type == "cpu" else 1
    if least:
        return torch.mm(_filled(x, least), across)[:count, :width]
    return torch.cat([torch.mm(x[row : row + 1], across) for row in range(count)])[:, :width]


def with_rows(x: Tensor) -> Tensor:
    """x [..., R, K] with rows of zeros behind it where a batched product would have too few."""
    return _filled(x, max(least_rows() or _CANDIDATES[-1], _ATTENTION_ROWS))


def pointwise(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """function(x), for a function of single numbers; x [..., D]."""
    width = x.shape[-1]
    filled = pad(x, (0, -width % _LANES)) if width % _LANES else x
    # Threads share the numbers out evenly, so the share of each must end with a whole vector too.
    shares = min(torch.get_num_threads(), -(-filled.numel() // _SHARE))
    missing = -filled.numel() % (_LANES * max(shares, 1))
    if missing:
        flat = function(pad(filled.flatten(), (0, missing)))
        return flat[:-missing].view(filled.shape)[..., :width]
    return function(filled)[..., :width]


@cache
def least_rows() -> int:
    """The row count from which this machine's library sums every row in one order, whatever their
    number and place; 0 when none is found, and products must go row by row.

    It depends on the processor: 4 and 16 have been seen. Measured once in a process.
    """
    generator = torch.Generator().manual_seed(0)
    trials = [
        (
            torch.randn((_TRIAL_ROWS, columns), generator=generator),
            torch.randn((rows, columns), generator=generator),
        )
        for rows, columns in _TRIALS
    ]
    found = (least for least in _CANDIDATES if all(_keeps_order(*t, least) for t in trials))
    return next(found, 0)


def _keeps_order(x: Tensor, weight: Tensor, least: int) -> bool:
    """Whether any run of `least` rows or more gives the bits that the rows have in the whole."""
    whole = torch.mm(x, weight.t())
    counts = {least, least + 1, least + 2, least + 3, 2 * least - 1, 2 * least + 1, 31, 32, 65}
    return all(
        torch.equal(torch.mm(x[start : start + count], weight.t()), whole[start : start + count])
        for count in counts
        if count >= least
        for start in (0, 5, _TRIAL_ROWS - count)
    )


def _filled(x: Tensor, least: int) -> Tensor:
    missing = least - x.shape[-2]
    return pad(x, (0, 0, 0, missing)) if missing > 0 else x
