"""Norms against formulas in Python floats, and their roundings."""

import math

import pytest
import torch
from torch.nn import functional

from ninfer.ops import add_rmsnorm, gated_rmsnorm, l2norm, rmsnorm


def rms_formula(x: list[float], weight: list[float], eps: float) -> list[float]:
    root = math.sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v / root * w for v, w in zip(x, weight, strict=True)]


def test_rmsnorm_formula():
    x, weight = torch.randn(3, 7, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    for offset in (False, True):
        factors = [w + offset for w in weight.tolist()]
        want = [rms_formula(row, factors, 0.01) for row in x.tolist()]
        got = rmsnorm(x, weight, eps=0.01, unit_offset=offset)
        assert torch.allclose(got, torch.tensor(want, dtype=torch.float64), rtol=1e-13, atol=0)


def test_rmsnorm_equals_torch():
    x, weight = torch.randn(5, 96), torch.randn(96)
    want = functional.rms_norm(x, (96,), weight, 1e-6)
    torch.testing.assert_close(rmsnorm(x, weight, eps=1e-6, unit_offset=False), want)


def test_l2norm_formula():
    x = torch.randn(4, 9, dtype=torch.float64)
    want = [[v / math.sqrt(sum(u * u for u in row) + 1e-6) for v in row] for row in x.tolist()]
    got = l2norm(x, eps=1e-6)
    assert torch.allclose(got, torch.tensor(want, dtype=torch.float64), rtol=1e-13, atol=0)


def test_zero_rows_stay_zero():
    zero = torch.zeros(2, 8)
    assert rmsnorm(zero, torch.ones(8), eps=1e-6, unit_offset=True).eq(0).all()
    assert l2norm(zero, eps=1e-6).eq(0).all()


def test_gate_multiplies_before_the_one_rounding():
    x, gate = torch.randn(64, 128).bfloat16(), torch.randn(64, 128).bfloat16()
    weight = torch.randn(128).bfloat16()
    normed = functional.rms_norm(x.double(), (128,), weight.double(), 1e-6)
    want = (normed * functional.silu(gate.double())).bfloat16()
    got = gated_rmsnorm(x, gate, weight, eps=1e-6)
    # float32 against float64 may fall on two sides of a rounding border, but rarely.
    assert (got != want).float().mean() < 1e-3
    twice = (normed.bfloat16() * functional.silu(gate.double()).bfloat16()).bfloat16()
    assert (twice != want).float().mean() > 0.1


def test_sum_is_rounded_and_then_normed():
    x, residual = torch.randn(8, 64).bfloat16(), (torch.randn(8, 64) * 50).bfloat16()
    weight = torch.randn(64)
    normed, total = add_rmsnorm(x, residual, weight, eps=1e-6, unit_offset=True)
    assert torch.equal(total, (x.float() + residual.float()).bfloat16())
    assert torch.equal(normed, rmsnorm(total, weight, eps=1e-6, unit_offset=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_results_have_the_type_of_x(dtype: torch.dtype):
    x, weight = torch.randn(2, 8, dtype=dtype), torch.randn(8)
    assert rmsnorm(x, weight, eps=1e-6, unit_offset=True).dtype is dtype
    assert gated_rmsnorm(x, x, weight, eps=1e-6).dtype is dtype
    assert [t.dtype for t in add_rmsnorm(x, x, weight, eps=1e-6, unit_offset=False)] == [dtype] * 2
    assert l2norm(x, eps=1e-6).dtype is dtype
