"""Products with NVFP4 and FP8 weights against float64 sums over words read by their definition."""

import struct

import pytest
import torch
from torch import Tensor

from ninfer.formats import Fp8RowMatrix, Nvfp4Matrix
from ninfer.ops import linear, linear_add, linear_swiglu

NVFP4_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def e4m3(byte: int) -> float:
    """Sign, four exponent bits of bias 7, three fraction bits; exponent 0 is subnormal."""
    sign, exponent, fraction = byte >> 7, byte >> 3 & 15, byte & 7
    size = fraction * 2.0**-9 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)
    return -size if sign else size


def float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def nvfp4(rows: int, columns: int) -> tuple[Nvfp4Matrix, list[list[float]]]:
    """Random words of every kind, and the values that they stand for."""
    codes = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
    scales = torch.randint(0, 0x7F, (rows * columns // 16,), dtype=torch.uint8)
    matrix = Nvfp4Matrix((rows, columns), codes, scales, divisor=0.75)
    tiles, values = columns // 64, []
    for n in range(rows):
        row = []
        for k in range(columns):
            byte = int(codes[n, k // 2])
            code = byte >> 4 if k % 2 else byte & 15
            magnitude = NVFP4_MAGNITUDES[code & 7] * (-1 if code & 8 else 1)
            g = k // 16
            tile = (n // 128) * tiles + g // 4
            at = tile * 512 + (n % 32) * 16 + (n % 128 // 32) * 4 + g % 4
            row.append(float32(magnitude * e4m3(int(scales[at])) / 0.75))
        values.append(row)
    return matrix, values


def fp8(rows: int, columns: int) -> tuple[Fp8RowMatrix, list[list[float]]]:
    codes = torch.randint(0, 256, (rows, columns), dtype=torch.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0x3A  # these two codes are NaN
    scales = torch.rand(rows).mul(0.1).bfloat16()
    values = [
        [e4m3(byte) * scale for byte in row]
        for row, scale in zip(codes.tolist(), scales.tolist(), strict=True)
    ]
    return Fp8RowMatrix((rows, columns), codes, scales), values


def product(x: Tensor, values: list[list[float]]) -> Tensor:
    """Sums in Python floats, one term after another."""
    out = [
        [sum(a * b for a, b in zip(row, weight, strict=True)) for weight in values]
        for row in x.tolist()
    ]
    return torch.tensor(out, dtype=torch.float64)


# 256 rows are two tiles of scales above each other, 192 columns three beside each other.
@pytest.mark.parametrize(("make", "rows"), [(nvfp4, 256), (fp8, 37)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_products_are_the_sums(make, rows: int, dtype: torch.dtype) -> None:
    matrix, values = make(rows, 192)
    x = torch.randn(2, 192).to(dtype)
    residual = (torch.randn(2, rows) * 100).to(dtype)
    want = product(x, values)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2.0**-8}[dtype]
    got = linear(x, matrix)
    assert got.dtype is dtype
    assert float((got.double() - want).norm() / want.norm()) < tolerance
    total = want + residual.double()
    got = linear_add(x, matrix, residual)
    assert float((got.double() - total).norm() / total.norm()) < tolerance


@pytest.mark.parametrize("make", [nvfp4, fp8])
def test_swiglu_is_the_formula(make) -> None:
    matrix, values = make(256, 64)
    x = torch.randn(3, 64, dtype=torch.float64) * 1e-3
    gate, up = product(x, values[:128]), product(x, values[128:])
    want = gate / (1 + torch.exp(-gate)) * up
    assert float((linear_swiglu(x, matrix) - want).norm() / want.norm()) < 1e-12


def test_every_code_is_met() -> None:
    """The random words hold all 16 nibbles and all legal bytes, or the sums would say little."""
    matrix, _ = nvfp4(256, 192)
    assert set((matrix.codes & 15).flatten().tolist()) == set(range(16))
    assert set(matrix.scales.tolist()) == set(range(0x7F))
    assert set(fp8(37, 192)[0].codes.flatten().tolist()) == set(range(256)) - {0x7F, 0xFF}
