"""Chains of pointwise ops as one kernel on CUDA."""

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch
import torch._dynamo
import torch.fx.experimental._config
from torch import Tensor

# Sizes that happen to be equal must not be taken for the same: that would compile again and again.
torch.fx.experimental._config.use_duck_shape = False
torch._dynamo.config.recompile_limit = 32

P = ParamSpec("P")
R = TypeVar("R")


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
