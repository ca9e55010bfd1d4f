"""Random matrices drawn in their packed form: legal words of any format, without quantising.

Drawing words costs a small part of drawing floats and encoding them, which matters at full size.
"""

import math

import torch
from torch import Tensor

from ninfer.convert.random_values import RandomValues
from ninfer.formats import (
    Fp8RowMatrix,
    GroupedMatrix,
    NumericFormat,
    Nvfp4Matrix,
    PackedMatrix,
    numeric_format,
    to_direct,
)
from ninfer.formats.minifloat import decode_e4m3, decode_nibbles
from ninfer.formats.packed import row_blocks
from ninfer.formats.planes import pack_codes, unpack_codes
from ninfer.formats.registry import ROW_LANES
from ninfer.models import TensorSpec

# NVFP4 block scales are drawn from this many words above that of 0.5: two octaves less one step.
_E4M3_HALF = 0x30
_SCALE_WORDS = 16


def random_object(values: RandomValues, spec: TensorSpec) -> Tensor | PackedMatrix:
    """One object of a model on the device of `values`: words for matrices, values for the rest.

    Rows of a draft head are not those of the output head, unlike in a real checkpoint.
    """
    if numeric_format(spec.format).kind == "direct":
        return to_direct(values.of(spec), spec.format, spec.name)
    rows, width = spec.shape
    generator = values.generator(spec.name)
    return random_matrix(spec.format, (rows, width), values.spread(spec), generator)


def random_matrix(
    format: str, shape: tuple[int, int], spread: float, generator: torch.Generator
) -> PackedMatrix:
    """A matrix [N, K] on the generator's device whose entries have about that root mean square.

    Codes are uniform over the legal words. The shape must be one that the format can hold.
    """
    entry = numeric_format(format)
    match entry.kind:
        case "grouped":
            return _grouped(entry, shape, spread, generator)
        case "fp4":
            return _nvfp4(shape, spread, generator)
        case _:
            assert entry.kind == "fp8", format
            return _fp8(shape, spread, generator)


def _bytes(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Uniform random bytes, drawn eight at a time."""
    count = math.prod(shape)
    words = torch.empty(-(-count // 8), dtype=torch.int64, device=generator.device)
    words.random_(-(1 << 63), None, generator=generator)
    return words.view(torch.uint8)[:count].view(shape)


def _factors(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Float32 factors of mean one, so that neighbouring scales differ."""
    factors = torch.rand(shape, generator=generator, device=generator.device)
    return factors.mul_(0.5).add_(0.75)


def _grouped(
    entry: NumericFormat, shape: tuple[int, int], spread: float, generator: torch.Generator
) -> GroupedMatrix:
    rows, width = shape
    groups = entry.groups_per_row(width)
    base = _bytes((rows, groups, entry.base_bytes), generator)
    high = _bytes((rows, groups, entry.high_bytes), generator) if entry.high_bits else None
    if entry.bits == 8:
        for span in row_blocks(rows, width, base.device):
            base[span].masked_fill_(base[span] == 0x80, 0)
    codes = torch.arange(entry.qmin, entry.qmax + 1, dtype=torch.float32)
    scales = _factors((rows, groups), generator).mul_(spread / _rms(codes)).to(torch.float16)
    matrix = GroupedMatrix(entry.name, shape, base, high, scales)
    _clear_padding(matrix)
    return matrix


def _clear_padding(matrix: GroupedMatrix) -> None:
    """Zero the lanes and whole groups beyond the last column, in place."""
    entry, width = matrix.entry, matrix.shape[1]
    used = width % ROW_LANES
    if used == 0:
        return
    last = slice(-(ROW_LANES // entry.group), None)  # the groups of the last, partly used lanes
    high = None if matrix.high is None else matrix.high[:, last]
    codes = unpack_codes(matrix.base[:, last], high, entry).flatten(1)
    codes = torch.where(torch.arange(ROW_LANES, device=codes.device) < used, codes, 0)
    base, extra = pack_codes(codes.view(len(codes), -1, entry.group), entry)
    matrix.base[:, last] = base
    if matrix.high is not None and extra is not None:
        matrix.high[:, last] = extra
    matrix.scales[:, -(-width // entry.group) :] = 0


def _nvfp4(shape: tuple[int, int], spread: float, generator: torch.Generator) -> Nvfp4Matrix:
    rows, width = shape
    codes = _bytes((rows, width // 2), generator)
    scales = _bytes((rows * width // 16,), generator).remainder_(_SCALE_WORDS).add_(_E4M3_HALF)
    words = torch.arange(_E4M3_HALF, _E4M3_HALF + _SCALE_WORDS, dtype=torch.uint8)
    legal = decode_nibbles(torch.arange(256, dtype=torch.uint8))
    unscaled = _rms(legal) * _rms(decode_e4m3(words))
    divisor = float(torch.tensor(unscaled / spread, dtype=torch.float32))
    return Nvfp4Matrix(shape, codes, scales, divisor)


def _fp8(shape: tuple[int, int], spread: float, generator: torch.Generator) -> Fp8RowMatrix:
    rows, width = shape
    codes = _bytes(shape, generator)
    for span in row_blocks(rows, width, codes.device):
        # NaN words become the largest finite ones of their sign.
        codes[span] -= ((codes[span] & 0x7F) == 0x7F).to(torch.uint8)
    drawn = torch.arange(0x80, dtype=torch.uint8).clamp_(max=0x7E)
    scale = spread / _rms(decode_e4m3(drawn))
    return Fp8RowMatrix(shape, codes, _factors((rows,), generator).mul_(scale).to(torch.bfloat16))


def _rms(values: Tensor) -> float:
    return float(values.to(torch.float64).square().mean().sqrt())
