"""Matrix products against exact rational sums, over dense and packed weights and their blocks."""

from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from torch.nn import functional

from ninfer.formats import dequantise, quantise
from ninfer.ops import linear, linear_add, linear_swiglu, weights

PACKED = ("Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S", "NVFP4", "FP8_E4M3FN_ROW_BF16S")


def test_bf16_product_is_the_rounded_exact_sum():
    x, weight = torch.randn(2, 30).bfloat16(), torch.randn(5, 30).bfloat16()
    got = linear(x, weight)
    for t in range(2):
        for n in range(5):
            terms = zip(x[t].tolist(), weight[n].tolist(), strict=True)
            exact = sum(Fraction(a) * Fraction(b) for a, b in terms)
            want = torch.tensor(float(exact), dtype=torch.float64)
            assert abs(float(got[t, n]) - float(want)) <= abs(float(want)) * 2.0**-8 + 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("form", PACKED)
def test_packed_weight_equals_its_decoded_values(form: str, dtype: torch.dtype):
    packed = quantise(torch.randn(256, 128), form)
    x = torch.randn(3, 128).to(dtype)
    want = (x.double() @ dequantise(packed, torch.float64).T).to(dtype)
    torch.testing.assert_close(linear(x, packed), want)
    assert linear(x, packed).dtype is dtype


@pytest.mark.parametrize("form", [None, "Q5G64_F16S", "NVFP4"])
def test_block_size_does_not_show(form: str | None, monkeypatch: pytest.MonkeyPatch):
    matrix = torch.randn(640, 64)
    weight = matrix.bfloat16() if form is None else quantise(matrix, form)
    x = torch.randn(2, 64)
    whole = linear(x, weight)
    monkeypatch.setattr(weights, "_BLOCK_WEIGHTS", 1)
    assert [b - a for a, b in weights.row_blocks(weight)] == [128] * 5
    torch.testing.assert_close(linear(x, weight), whole, rtol=1e-6, atol=1e-6)


def test_blocks_cover_the_rows_once_within_their_bound():
    for rows, columns in ((1, 1), (127, 5120), (34816, 5120), (248320, 64), (10, 10**9)):
        spans = list(weights.row_blocks(torch.empty(rows, columns, device="meta")))
        assert spans[0][0] == 0 and spans[-1][1] == rows
        assert all(a[1] == b[0] for a, b in pairwise(spans))
        assert all(a % 128 == 0 for a, _ in spans)
        assert all((b - a) * columns <= max(1 << 19, 128 * columns) for a, b in spans)


def test_residual_is_added_before_the_one_rounding():
    x, weight = torch.randn(16, 64).bfloat16(), torch.randn(80, 64).bfloat16()
    residual = (torch.randn(16, 80) * 30).bfloat16()
    product = x.double() @ weight.double().T
    want = (product + residual.double()).bfloat16()
    assert (linear_add(x, weight, residual) != want).float().mean() < 2e-3
    twice = (product.bfloat16().double() + residual.double()).bfloat16()
    assert (twice != want).float().mean() > 0.02


def test_swiglu_gates_with_the_first_half():
    x, weight = torch.randn(4, 20), torch.randn(12, 20)
    gate, up = x @ weight[:6].T, x @ weight[6:].T
    torch.testing.assert_close(linear_swiglu(x, weight), functional.silu(gate) * up)


def test_column_slices_are_read_in_place():
    wide = torch.randn(3, 50)
    weight = torch.randn(4, 20)
    torch.testing.assert_close(linear(wide[:, 10:30], weight), wide[:, 10:30].clone() @ weight.T)


@pytest.mark.parametrize("form", [None, "Q4G64_F16S"])
def test_a_row_is_the_same_alone_and_in_company(form: str | None):
    weight = torch.randn(96, 64) if form is None else quantise(torch.randn(96, 64), form)
    x = torch.randn(17, 64)
    together = linear(x, weight)
    for t in range(17):
        torch.testing.assert_close(linear(x[t : t + 1], weight), together[t : t + 1])
