"""Bit planes of grouped integer codes: lanes of a group to and from its base and high bytes."""

from typing import Final

import torch
from torch import Tensor

from ninfer.formats.registry import NumericFormat

_ONES: Final = 0x0101010101010101
# Times a word whose bytes are 0 or 1, this puts byte i into bit 56 + i; no two terms collide.
_GATHER_BITS: Final = 0x0102040810204080
# Times a word whose four bytes are 0..3, this puts byte i into bits 24 + 2i and 25 + 2i.
_GATHER_PAIRS: Final = 0x01041040


def pack_codes(codes: Tensor, entry: NumericFormat) -> tuple[Tensor, Tensor | None]:
    """Pack int8 codes [..., G] into base [..., 32] and high [..., H] bytes (None when H is 0).

    Byte j of the base holds lanes 2j (low nibble) and 2j + 1 of 4- to 6-bit codes, or lane j of
    8-bit codes. The high plane is the lane-major little-endian stream of the bits above bit 3.
    """
    codes = codes.contiguous()
    if entry.bits == 8:
        return codes.view(torch.uint8), None
    pairs = codes.view(torch.int16)
    base = ((pairs & 0x0F) | ((pairs >> 4) & 0xF0)).to(torch.uint8)
    if entry.high_bits == 0:
        return base, None
    if entry.high_bits == 1:
        words = (codes.view(torch.int64) >> 4) & _ONES
        return base, (words.mul_(_GATHER_BITS) >> 56).to(torch.uint8)
    quads = (codes.view(torch.int32) >> 4) & 0x03030303
    return base, (quads.mul_(_GATHER_PAIRS) >> 24).to(torch.uint8)


def unpack_codes(base: Tensor, high: Tensor | None, entry: NumericFormat) -> Tensor:
    """Codes int8 [..., G] of base [..., 32] and high [..., H] bytes; inverse of pack_codes."""
    if entry.bits == 8:
        return base.view(torch.int8)
    pairs = base.to(torch.int16)
    codes = ((pairs | (pairs << 4)) & 0x0F0F).view(torch.int8)  # [..., G]
    if high is not None:
        spread = _spread_bits(high) if entry.high_bits == 1 else _spread_pairs(high)
        codes |= spread
    sign = 1 << (entry.bits - 1)
    return codes.bitwise_xor_(sign).sub_(sign)


def _spread_bits(high: Tensor) -> Tensor:
    """Bit i of each byte, moved to bit 4 of lane i: [..., H] to int8 [..., 8H]."""
    word = high.to(torch.int64)
    word = (word | (word << 28)) & 0x0000000F0000000F
    word = (word | (word << 14)) & 0x0003000300030003
    word = (word | (word << 7)) & _ONES
    return (word << 4).view(torch.int8)


def _spread_pairs(high: Tensor) -> Tensor:
    """Bits 2i and 2i + 1 of each byte, moved to bits 4 and 5 of lane i: int8 [..., 4H]."""
    word = high.to(torch.int32)
    word = (word | (word << 12)) & 0x000F000F
    word = (word | (word << 6)) & 0x03030303
    return (word << 4).view(torch.int8)
