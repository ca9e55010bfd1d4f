"""Encode and decode a matrix in any packed format, chosen by name."""

import torch
from torch import Tensor

from ninfer.errors import FormatError
from ninfer.formats import fp4, fp8, grouped
from ninfer.formats.packed import PackedMatrix
from ninfer.formats.registry import numeric_format


def quantise(matrix: Tensor, format: str, name: str = "matrix") -> PackedMatrix:
    """Encode a float matrix [N, K] in the packed format of that name.

    Raises FormatError, naming `name`, for values or shapes that the format cannot hold, and for
    direct formats, which have no packed form.
    """
    match numeric_format(format).kind:
        case "grouped":
            return grouped.quantise(matrix, format, name)
        case "fp4":
            return fp4.quantise(matrix, name)
        case "fp8":
            return fp8.quantise(matrix, name)
        case "direct":
            raise FormatError(f"{name}: {format} stores plain words; it has no packed form")


def dequantise(packed: PackedMatrix, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values [N, K] of a packed matrix, each rounded once from its float32 value to `dtype`."""
    return packed.dequantise(dtype)
