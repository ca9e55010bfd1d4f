"""Direct formats BF16, FP32 and I32: the torch type of their words."""

from types import MappingProxyType

import torch
from torch import Tensor

from ninfer.errors import FormatError

DIRECT_DTYPES = MappingProxyType(
    {"BF16": torch.bfloat16, "FP32": torch.float32, "I32": torch.int32}
)


def to_direct(tensor: Tensor, format: str, name: str = "tensor") -> Tensor:
    """Words of `tensor` in a direct format; unchanged when it has that type already.

    Floats round to nearest even. Raises FormatError, naming `name`, where a conversion would lose
    the meaning: floats to I32, integers to floats, integers beyond 32 bits.
    """
    dtype = DIRECT_DTYPES.get(format)
    if dtype is None:
        raise FormatError(f"{name}: {format} is not a direct format; use {list(DIRECT_DTYPES)}")
    if tensor.dtype == dtype:
        return tensor
    if tensor.is_floating_point() != dtype.is_floating_point:
        raise FormatError(f"{name}: {tensor.dtype} values have no exact meaning as {format}")
    words = tensor.to(dtype)
    if not dtype.is_floating_point and not torch.equal(words.to(tensor.dtype), tensor):
        raise FormatError(f"{name}: a value does not fit {format}")
    return words
