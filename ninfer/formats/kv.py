"""KV-cache formats: head rows of keys and values to and from stored words.

`bf16` and `fp32` store rounded words. `int8` stores codes in groups of 64 along head_dim, each
with one binary16 multiplier, by the encoder of the grouped weight formats with qmax 127. `fp8`
stores E4M3FN codes of groups of 256, which is a whole head row, with the binary16 multiplier
clamp(amax / 448, 2**-24, 65504). `int4` is `int8` with qmax 7 and two codes a byte, as two's
complement, that of the even place in the low four bits. No rotation is applied before encoding.
What a stored word means is its decoded float32 value.
"""

from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn.functional import pad

from ninfer.formats.grouped import RESCUE_SCALE, group_scales, round_to_codes
from ninfer.formats.minifloat import E4M3_MAX, decode_e4m3, encode_e4m3
from ninfer.formats.registry import KV_FORMATS, KVFormat, kv_format

__all__ = ["KV_FORMATS", "KVFormat", "decode", "encode", "kv_format", "word_dtype"]

_DTYPES = MappingProxyType(
    {
        "bf16": torch.bfloat16,
        "fp32": torch.float32,
        "int8": torch.int8,
        "fp8": torch.uint8,
        "int4": torch.uint8,
    }
)
_QMAX = MappingProxyType({"int8": 127, "int4": 7})
_MOST_SCALE = torch.finfo(torch.float16).max


def word_dtype(format: str) -> torch.dtype:
    """Torch type of the stored words. Raises FormatError for an unknown format."""
    return _DTYPES[kv_format(format).name]


def encode(format: str, values: Tensor) -> tuple[Tensor, Tensor | None]:
    """Words [..., W] and multipliers [..., groups] of rows [..., D]; None for direct formats.

    W is D but for int4, where it is D / 2 and an odd D raises FormatError.

    Never raises on values, since it runs inside a forward pass: a group with NaN or infinity gets a
    multiplier that is not finite, so that it decodes to values that are not finite; finite
    magnitudes above 65504 times the largest code (127, 7 or 448) saturate.
    """
    entry = kv_format(format)
    if not entry.group:
        return values.to(word_dtype(format)), None
    width = values.shape[-1]
    entry.words(width)
    groups = _groups(values.to(torch.float32), entry)
    amax = groups.abs().amax(dim=-1)
    if entry.name == "fp8":
        codes, scales = _encode_e4m3(groups, amax)
        return codes.flatten(-2)[..., :width].contiguous(), scales
    qmax = _QMAX[entry.name]
    scales = group_scales(amax, qmax)
    scales = torch.where(scales.isinf() & amax.isfinite(), _MOST_SCALE, scales)
    codes = round_to_codes(groups, scales, -qmax, qmax).flatten(-2)[..., :width]
    return (_packed(codes) if entry.codes == 2 else codes.contiguous()), scales


def decode(format: str, words: Tensor, scales: Tensor | None = None) -> Tensor:
    """Float32 rows [..., D] of stored words [..., W] and multipliers [..., groups]."""
    entry = kv_format(format)
    if entry.codes == 2:
        words = _unpacked(words)
    values = decode_e4m3(words) if entry.name == "fp8" else words.to(torch.float32)
    if not entry.group:
        return values
    assert scales is not None, f"KV format {format} needs scales"
    scaled = _groups(values, entry) * scales.to(torch.float32).unsqueeze(-1)
    return scaled.flatten(-2)[..., : words.shape[-1]]


def _packed(codes: Tensor) -> Tensor:
    """Bytes [..., D / 2] of int8 codes -8..7 [..., D]."""
    low, high = codes[..., ::2].view(torch.uint8), codes[..., 1::2].view(torch.uint8)
    return (low & 15) | (high << 4)


def _unpacked(words: Tensor) -> Tensor:
    """Int8 codes [..., 2 W] of bytes [..., W]."""
    # Shifted up and down again, the sign comes with it.
    low = (words << 4).view(torch.int8) >> 4
    return torch.stack((low, words.view(torch.int8) >> 4), dim=-1).flatten(-2)


def _encode_e4m3(groups: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    """E4M3FN words [..., G] and multipliers [...] of float32 groups [..., G]."""
    # A tensor on the device, because CUDA divides by a host scalar as times its reciprocal.
    raw = amax / torch.full((1,), E4M3_MAX, device=amax.device)
    scales = raw.clamp(RESCUE_SCALE, _MOST_SCALE).to(torch.float16)
    scales = torch.where(amax.isinf(), float("inf"), scales)
    scaled = groups * scales.to(torch.float32).reciprocal().unsqueeze(-1)
    return encode_e4m3(scaled.clamp_(-E4M3_MAX, E4M3_MAX)), scales


def _groups(rows: Tensor, entry: KVFormat) -> Tensor:
    """Rows [..., D] as zero-padded groups [..., ceil(D / group), group]."""
    *outer, width = rows.shape
    groups = entry.scale_groups(width)
    padded = pad(rows, (0, groups * entry.group - width))
    return padded.reshape(*outer, groups, entry.group)
