"""The one rule on the number type in which a reference op computes."""

import torch
from torch import Tensor


def wide(x: Tensor) -> torch.dtype:
    """The type to compute in for a first input `x`: float64 for float64, else float32.

    A reference op widens its inputs, computes, and rounds once to the type of `x`; given float64
    inputs the same code is the oracle.
    """
    return torch.float64 if x.dtype is torch.float64 else torch.float32
