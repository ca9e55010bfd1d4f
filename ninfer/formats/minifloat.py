"""Small float codes: E2M1 nibbles and E4M3FN bytes to and from float32."""

from typing import Final

import torch
from torch import Tensor

E2M1_MAX: Final = 6.0
E4M3_MAX: Final = 448.0
# Magnitudes of E2M1 codes 0..7; bit 3 of a code is the sign.
E2M1_MAGNITUDES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def encode_e2m1(values: Tensor) -> Tensor:
    """Nearest E2M1 codes, uint8 0..15, of float32 values; ties go to the even code.

    Magnitudes above 6 saturate. A value that rounds to zero keeps its sign bit.
    """
    size = values.abs()
    # One rounding a step of the grid: 0.5 below 2, 1 below 4, 2 below 6.
    codes = (size * 2).round_().clamp_(max=4)
    codes += size.round().sub_(2).clamp_(0, 2)
    codes += size.mul_(0.5).round_().sub_(2).clamp_(0, 1)
    signs = (values.view(torch.int32) >> 28) & 8
    return codes.to(torch.int32).bitwise_or_(signs).to(torch.uint8)


def pack_nibbles(codes: Tensor) -> Tensor:
    """Bytes [..., K / 2] of nibble codes [..., K]: the even lane is the low nibble."""
    pairs = codes.contiguous().view(torch.int16)
    return ((pairs & 0x0F) | (pairs >> 4)).to(torch.uint8)


def unpack_nibbles(words: Tensor) -> Tensor:
    """Nibble codes uint8 [..., K] of bytes [..., K / 2]; inverse of pack_nibbles."""
    pairs = words.to(torch.int16)
    return ((pairs | (pairs << 4)) & 0x0F0F).view(torch.uint8)


def decode_nibbles(words: Tensor) -> Tensor:
    """Float32 values [..., K] of bytes [..., K / 2] that hold E2M1 nibbles."""
    nibbles = unpack_nibbles(words).to(torch.int16)
    # The three magnitude bits sit on binary16's exponent border; 2**14 mends the exponent bias.
    halves = ((nibbles & 8) << 12) | ((nibbles & 7) << 9)
    return halves.view(torch.float16).to(torch.float32).mul_(16384.0)


def encode_e4m3(values: Tensor) -> Tensor:
    """Nearest E4M3FN codes, uint8, of float32 values in -448..448; ties go to the even code."""
    return values.to(torch.float8_e4m3fn).view(torch.uint8)


def decode_e4m3(codes: Tensor) -> Tensor:
    """Float32 values of E4M3FN codes; 0x7f and 0xff are NaN."""
    every = torch.arange(256, dtype=torch.uint8, device=codes.device)
    table = every.view(torch.float8_e4m3fn).to(torch.float32)
    # A table look-up is several times faster than torch's own conversion on a CPU.
    return table.index_select(0, codes.reshape(-1).to(torch.int32)).view(codes.shape)
