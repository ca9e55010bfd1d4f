"""FP8 rows, E4M3FN codes with one bfloat16 multiplier a row: quantise, dequantise, pack, unpack.

The encoder is MAXABS_BF16S_RECIP_E4M3FN_RNE_V1 of the .ninfer container: scale =
bfloat16(amax / 448), code = e4m3(clamp(x * float32(1 / scale), -448, 448)), all to nearest even.
"""

from typing import Final

import torch
from torch import Tensor

from ninfer.errors import FormatError
from ninfer.formats.minifloat import E4M3_MAX, encode_e4m3
from ninfer.formats.packed import Fp8RowMatrix, row_blocks

# The least bfloat16 above zero: used when a scale would round to zero.
RESCUE_SCALE: Final = 2.0**-133


def quantise(matrix: Tensor, name: str = "matrix") -> Fp8RowMatrix:
    """Encode a float matrix [N, K]. Raises FormatError, naming `name`, for NaN or infinity."""
    rows, width = matrix.shape
    codes = torch.empty(rows, width, dtype=torch.uint8, device=matrix.device)
    scales = torch.empty(rows, dtype=torch.bfloat16, device=matrix.device)
    for span in row_blocks(rows, width, matrix.device):
        values = matrix[span].to(torch.float32)
        amax = values.abs().amax(dim=-1)
        bad = ~amax.isfinite()
        if bool(bad.any()):
            row = span.start + int(bad.nonzero()[0])
            raise FormatError(f"{name}: row {row} holds a value that is not finite")
        scales[span] = _row_scales(amax)
        found = encode_e4m3(_scaled(values, scales[span]))
        codes[span] = found.mul_((amax != 0).unsqueeze(-1))  # -0 in a zero row becomes +0
    return Fp8RowMatrix((rows, width), codes, scales)


def dequantise(packed: Fp8RowMatrix, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values [N, K] of a packed matrix; see Fp8RowMatrix.dequantise."""
    return packed.dequantise(dtype)


def pack(codes: Tensor, scales: Tensor) -> Fp8RowMatrix:
    """Hold E4M3FN words [N, K] (uint8) and multipliers [N] (bfloat16), unchanged."""
    return Fp8RowMatrix((codes.shape[0], codes.shape[1]), codes.contiguous(), scales.contiguous())


def unpack(packed: Fp8RowMatrix) -> tuple[Tensor, Tensor]:
    """E4M3FN words [N, K] and multipliers [N]; inverse of pack."""
    return packed.codes, packed.scales


def _row_scales(amax: Tensor) -> Tensor:
    # A tensor on the device, because CUDA divides by a host scalar as times its reciprocal.
    raw = amax / torch.full((1,), E4M3_MAX, device=amax.device)
    scales = raw.to(torch.bfloat16)
    return torch.where((scales == 0) & (amax > 0), RESCUE_SCALE, scales)


def _scaled(values: Tensor, scales: Tensor) -> Tensor:
    """Float32 values times the reciprocal of their row's scale, clamped to E4M3FN's range."""
    wide = scales.to(torch.float32).unsqueeze(-1)
    inverse = torch.where(wide == 0, 0.0, wide.reciprocal())
    scaled = values * inverse
    # Below 2**-128 the reciprocal overflows and would turn zeros into NaN; those rows divide.
    if bool(inverse.isinf().any()):
        scaled = torch.where(inverse.isinf(), values / wide, scaled)
    return scaled.clamp_(-E4M3_MAX, E4M3_MAX)
