"""Chains of pointwise ops as one kernel on CUDA."""

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R", Tensor, tuple[Tensor, Tensor])


def fused(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` for CUDA; on the CPU compiling would cost more than it saves.

    Its first positional argument is a tensor, whose device decides.
    """

    @cache
    def compiled() -> Callable[P, R]:
        return torch.compile(function, dynamic=True)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        first = args[0]
        assert isinstance(first, Tensor)
        chosen = compiled() if first.is_cuda else function
        return chosen(*args, **kwargs)

    return call
