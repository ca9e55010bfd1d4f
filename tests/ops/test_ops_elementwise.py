"""Elementwise ops against formulas in Python floats, and their single rounding."""

import math

import torch

from ninfer.ops import add, sigmoid_mul, silu_mul


def logistic(u: float) -> float:
    return 1 / (1 + math.exp(-u))


def test_formulas():
    x, y = torch.randn(2, 40, dtype=torch.float64) * 3
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    wanted = {
        silu_mul: [a * logistic(a) * b for a, b in pairs],
        sigmoid_mul: [a * logistic(b) for a, b in pairs],
        add: [a + b for a, b in pairs],
    }
    for op, want in wanted.items():
        assert torch.allclose(op(x, y), torch.tensor(want, dtype=torch.float64), rtol=1e-13, atol=0)


def test_extremes_do_not_become_nan():
    x = torch.tensor([-1e30, -200.0, 0.0, 200.0, 1e30])
    one = torch.ones(5)
    assert silu_mul(x, one).tolist() == [0.0, 0.0, 0.0, 200.0, x[4].item()]
    assert sigmoid_mul(one, x).tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]


def test_bf16_is_rounded_once():
    x, y = torch.randn(2, 4096).bfloat16()
    want = (torch.nn.functional.silu(x.double()) * y.double()).bfloat16()
    assert (silu_mul(x, y) != want).float().mean() < 1e-3
    assert torch.equal(add(x, y), (x.double() + y.double()).bfloat16())
    assert (
        sigmoid_mul(x, y) != (x.double() * y.double().sigmoid()).bfloat16()
    ).float().mean() < 1e-3
