"""KV-cache formats: head rows of keys and values to and from stored words.

`bf16` and `fp32` store rounded words. `int8` stores codes in groups of 64 along head_dim, each
with one binary16 multiplier, by the encoder of the grouped weight formats with qmax 127. No
rotation is applied before encoding. What a stored word means is its decoded float32 value.
"""

from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn.functional import pad

from ninfer.formats.grouped import group_scales, round_to_codes
from ninfer.formats.registry import KV_FORMATS, KVFormat, kv_format

__all__ = ["KV_FORMATS", "KVFormat", "decode", "encode", "kv_format", "word_dtype"]

_DTYPES = MappingProxyType({"bf16": torch.bfloat16, "fp32": torch.float32, "int8": torch.int8})
_QMAX = 127


def word_dtype(format: str) -> torch.dtype:
    """Torch type of the stored words. Raises FormatError for an unknown format."""
    return _DTYPES[kv_format(format).name]


def encode(format: str, values: Tensor) -> tuple[Tensor, Tensor | None]:
    """Words [..., D] and multipliers [..., ceil(D / 64)] of rows [..., D]; None for direct formats.

    Never raises on values, since it runs inside a forward pass: a group with NaN or infinity gets a
    multiplier that is not finite, so that it decodes to values that are not finite; finite
    magnitudes above 127 * 65504 saturate.
    """
    entry = kv_format(format)
    if not entry.group:
        return values.to(word_dtype(format)), None
    width = values.shape[-1]
    groups = _groups(values.to(torch.float32), entry)
    amax = groups.abs().amax(dim=-1)
    scales = group_scales(amax, _QMAX)
    scales = torch.where(scales.isinf() & amax.isfinite(), torch.finfo(scales.dtype).max, scales)
    codes = round_to_codes(groups, scales, -_QMAX, _QMAX)
    return codes.flatten(-2)[..., :width], scales


def decode(format: str, words: Tensor, scales: Tensor | None = None) -> Tensor:
    """Float32 rows [..., D] of stored words [..., D] and multipliers [..., ceil(D / 64)]."""
    entry = kv_format(format)
    values = words.to(torch.float32)
    if not entry.group:
        return values
    assert scales is not None, f"KV format {format} needs scales"
    scaled = _groups(values, entry) * scales.to(torch.float32).unsqueeze(-1)
    return scaled.flatten(-2)[..., : words.shape[-1]]


def _groups(rows: Tensor, entry: KVFormat) -> Tensor:
    """Rows [..., D] as zero-padded groups [..., ceil(D / group), group]."""
    *outer, width = rows.shape
    groups = entry.scale_groups(width)
    padded = pad(rows, (0, groups * entry.group - width))
    return padded.reshape(*outer, groups, entry.group)
