"""NVFP4, block-scaled E2M1: quantise, dequantise, pack, unpack.

Weights of published artifacts keep the fields of their source checkpoint. For our own files,
`quantise` follows the usual two-level rule: divisor = 6 * 448 / max|W|, so that the largest block
scale is E4M3FN's largest value; scale = e4m3(min(divisor * max|block| / 6, 448)); code =
e2m1(x * divisor / scale). Both roundings are to nearest even.
"""

import math

import torch
from torch import Tensor

from ninfer.errors import FormatError
from ninfer.formats.minifloat import (
    E2M1_MAX,
    E4M3_MAX,
    decode_e4m3,
    encode_e2m1,
    encode_e4m3,
    pack_nibbles,
    unpack_nibbles,
)
from ninfer.formats.packed import Nvfp4Matrix, row_blocks
from ninfer.formats.swizzle import TILE_ROWS, swizzle, unswizzle

GROUP = 16


def choose_divisor(amax: float) -> float:
    """Matrix divisor, a float32 value, for a largest magnitude `amax`; 1 for a zero matrix.

    Below about 8e-36 the ideal divisor is beyond float32 and the largest finite one is used.
    """
    if amax == 0:
        return 1.0
    ideal = torch.tensor(E2M1_MAX * E4M3_MAX) / torch.tensor(amax)
    return float(ideal.clamp(max=torch.finfo(torch.float32).max))


def quantise(matrix: Tensor, name: str = "matrix", divisor: float | None = None) -> Nvfp4Matrix:
    """Encode a float matrix [N, K], N a multiple of 128 and K of 64.

    `divisor` fixes the matrix divisor (a float32 value) instead of choosing it. Raises FormatError,
    naming `name`, for other shapes, NaN or infinity, or a divisor that is not positive and finite.
    """
    rows, width = matrix.shape
    if rows % TILE_ROWS or width % 64:
        raise FormatError(
            f"{name}: NVFP4 needs rows in multiples of 128 and columns of 64, got {rows} x {width}"
        )
    largest = _largest(matrix, name)
    if divisor is None:
        divisor = choose_divisor(largest)
    elif not (math.isfinite(divisor) and divisor > 0):
        raise FormatError(f"{name}: divisor {divisor} is not positive and finite")
    codes = torch.empty(rows, width // 2, dtype=torch.uint8, device=matrix.device)
    scales = torch.empty(rows, width // GROUP, dtype=torch.uint8, device=matrix.device)
    for span in row_blocks(rows, width, matrix.device):
        groups = matrix[span].to(torch.float32).reshape(-1, width // GROUP, GROUP)
        codes[span], scales[span] = _encode(groups, divisor)
    return Nvfp4Matrix((rows, width), codes, swizzle(scales), divisor)


def dequantise(packed: Nvfp4Matrix, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values [N, K] of a packed matrix; see Nvfp4Matrix.dequantise."""
    return packed.dequantise(dtype)


def pack(codes: Tensor, scales: Tensor, divisor: float) -> Nvfp4Matrix:
    """Pack nibble codes [N, K] and row-major E4M3FN scale words [N, K / 16] (uint8), unchanged."""
    rows, width = codes.shape
    return Nvfp4Matrix((rows, width), pack_nibbles(codes), swizzle(scales), divisor)


def unpack(packed: Nvfp4Matrix) -> tuple[Tensor, Tensor]:
    """Nibble codes uint8 [N, K] and row-major scale words [N, K / 16]; inverse of pack."""
    return unpack_nibbles(packed.codes), unswizzle(packed.scales, packed.shape[0])


def _largest(matrix: Tensor, name: str) -> float:
    rows, width = matrix.shape
    largest = torch.zeros((), device=matrix.device)
    for span in row_blocks(rows, width, matrix.device):
        # torch.maximum hands NaN on.
        largest = torch.maximum(largest, matrix[span].to(torch.float32).abs().amax())
    if not bool(largest.isfinite()):
        raise FormatError(f"{name}: a value is not finite; NVFP4 holds finite values only")
    return float(largest)


def _encode(groups: Tensor, divisor: float) -> tuple[Tensor, Tensor]:
    """Packed codes [n, K / 2] and scale words [n, K / 16] of float32 groups [n, K / 16, 16]."""
    # Divisors are tensors on the device: CUDA turns a host scalar into a reciprocal.
    six = torch.full((1,), E2M1_MAX, device=groups.device)
    # Words of non-negative floats order as integers do, and integers reduce several times faster.
    amax = groups.abs().view(torch.int32).amax(dim=-1).view(torch.float32)
    words = encode_e4m3(((amax * divisor) / six).clamp_(max=E4M3_MAX))
    alive = words != 0
    scales = torch.where(alive, decode_e4m3(words), 1.0).unsqueeze(-1)
    codes = pack_nibbles(encode_e2m1((groups * divisor).div_(scales)).flatten(1))
    codes.view(torch.int64).mul_(alive)  # eight bytes are one group
    return codes, words
