"""Grouped integer formats Q4, Q5, Q6 (64 lanes) and W8 (32): quantise, dequantise, pack, unpack.

The encoder is MAXABS_F16_RECIP_RNE_V1 of the .ninfer container: scale = binary16(amax / qmax),
code = clamp(round_half_even(x * float32(1 / scale))). Order and roundings are part of the format:
dividing by the scale instead gives other codes.
"""

from typing import Final

import torch
from torch import Tensor

from ninfer.errors import FormatError
from ninfer.formats.packed import GroupedMatrix, row_blocks
from ninfer.formats.planes import pack_codes, unpack_codes
from ninfer.formats.registry import NumericFormat, numeric_format

# The least binary16 above zero: used when a scale would round to zero.
RESCUE_SCALE: Final = 2.0**-24


def group_scales(amax: Tensor, qmax: int) -> Tensor:
    """Binary16 multipliers of groups whose largest magnitudes are `amax` (float32).

    Zero stays zero; a scale that would round to zero becomes 2**-24; one that is too large becomes
    infinite, which the caller must look for.
    """
    # A tensor on the device, because CUDA divides by a host scalar as times its reciprocal.
    raw = amax / torch.full((1,), float(qmax), device=amax.device)
    scales = raw.to(torch.float16)
    return torch.where((scales == 0) & (amax > 0), RESCUE_SCALE, scales)


def round_to_codes(groups: Tensor, scales: Tensor, qmin: int, qmax: int) -> Tensor:
    """Codes int8 [..., G] of float32 groups [..., G] under multipliers [...]."""
    inverse = scales.to(torch.float32).reciprocal()
    inverse = torch.where(scales == 0, 0.0, inverse).unsqueeze(-1)
    return (groups * inverse).round_().clamp_(qmin, qmax).to(torch.int8)


def quantise(matrix: Tensor, format: str, name: str = "matrix") -> GroupedMatrix:
    """Encode a float matrix [N, K] in a grouped format.

    Values are first converted to float32. Raises FormatError, naming `name` and the group, for
    NaN, infinity, or a magnitude whose scale binary16 cannot hold.
    """
    entry = numeric_format(format)
    rows, width = matrix.shape
    groups = entry.groups_per_row(width)
    device = matrix.device
    base = torch.empty(rows, groups, entry.base_bytes, dtype=torch.uint8, device=device)
    high = (
        torch.empty(rows, groups, entry.high_bytes, dtype=torch.uint8, device=device)
        if entry.high_bits
        else None
    )
    scales = torch.empty(rows, groups, dtype=torch.float16, device=device)
    for span in row_blocks(rows, width, device):
        values = _padded(matrix[span], groups * entry.group).view(-1, groups, entry.group)
        amax = values.abs().amax(dim=-1)
        scales[span] = group_scales(amax, entry.qmax)
        _check_range(scales[span], amax, entry, name, span.start)
        codes = round_to_codes(values, scales[span], entry.qmin, entry.qmax)
        base[span], extra = pack_codes(codes, entry)
        if high is not None and extra is not None:
            high[span] = extra
    return GroupedMatrix(format, (rows, width), base, high, scales)


def dequantise(packed: GroupedMatrix, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values [N, K] of a packed matrix; see GroupedMatrix.dequantise."""
    return packed.dequantise(dtype)


def pack(codes: Tensor, scales: Tensor, format: str) -> GroupedMatrix:
    """Pack integer codes [N, K] (int8) with multipliers [N, ceil(K / G)] (float16), unchanged.

    Raises FormatError for codes that the format does not allow.
    """
    entry = numeric_format(format)
    rows, width = codes.shape
    if bool(((codes < entry.qmin) | (codes > entry.qmax)).any()):
        raise FormatError(f"{format} codes must lie in {entry.qmin}..{entry.qmax}")
    groups = entry.groups_per_row(width)
    lanes = torch.zeros(rows, groups * entry.group, dtype=torch.int8, device=codes.device)
    lanes[:, :width] = codes
    padded = torch.zeros(rows, groups, dtype=torch.float16, device=scales.device)
    padded[:, : scales.shape[1]] = scales
    base, high = pack_codes(lanes.view(rows, groups, entry.group), entry)
    return GroupedMatrix(format, (rows, width), base, high, padded)


def unpack(packed: GroupedMatrix) -> tuple[Tensor, Tensor]:
    """Codes int8 [N, K] and multipliers float16 [N, ceil(K / G)]; inverse of pack."""
    width = packed.shape[1]
    codes = unpack_codes(packed.base, packed.high, packed.entry).flatten(1)[:, :width]
    return codes.contiguous(), packed.scales[:, : -(-width // packed.entry.group)].contiguous()


def _padded(block: Tensor, width: int) -> Tensor:
    """A float32 copy of `block` with zero columns up to `width`; copies only when it must."""
    values = block.to(torch.float32)
    if block.shape[1] == width:
        return values.contiguous()
    out = torch.zeros(block.shape[0], width, device=block.device)
    out[:, : block.shape[1]] = values
    return out


def _check_range(
    scales: Tensor, amax: Tensor, entry: NumericFormat, name: str, first_row: int
) -> None:
    bad = ~scales.isfinite()
    if not bool(bad.any()):
        return
    row, group = (int(i) for i in bad.nonzero()[0])
    where = f"{name}: row {first_row + row}, columns from {group * entry.group}"
    largest = amax[row, group].item()
    if largest == largest and largest != float("inf"):
        limit = f"the largest {entry.name} can scale is about {65504 * entry.qmax}"
        raise FormatError(f"{where}: magnitude {largest:g} is too large; {limit}")
    raise FormatError(f"{where}: value is not finite; {entry.name} holds finite values only")
