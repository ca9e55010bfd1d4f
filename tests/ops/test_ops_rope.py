"""Rotary embedding against rotations of complex numbers computed in exact Python arithmetic."""

import cmath
from fractions import Fraction
from math import pi

import pytest
import torch

from ninfer.ops import mrope


def turned(x: torch.Tensor, positions: torch.Tensor, theta: float, rotary: int) -> torch.Tensor:
    """Each pair as a complex number times exp(i * angle), the turns reduced before rounding."""
    out = x.double().clone()
    half = rotary // 2
    for t in range(x.shape[0]):
        for i in range(half):
            frequency = theta ** (-2 * i / rotary)
            turns = Fraction(int(positions[i % 3, t])) * Fraction(frequency) / Fraction(2 * pi)
            turn = cmath.exp(2j * pi * float(turns % 1))
            for h in range(x.shape[1]):
                z = complex(x[t, h, i], x[t, h, i + half]) * turn
                out[t, h, i], out[t, h, i + half] = z.real, z.imag
    return out


@pytest.mark.parametrize(
    ("rotary", "theta", "top"), [(64, 1e7, 262_144), (16, 1e4, 1_000_000), (6, 1e4, 100)]
)
def test_formula_with_three_axes(rotary: int, theta: float, top: int):
    positions = torch.randint(0, top, (3, 4))
    positions[:, 0] = top
    x = torch.randn(4, 2, 80)
    want = turned(x, positions, theta, rotary)
    got = mrope(x.double(), positions, theta=theta, rotary_dim=rotary)
    assert (got - want).abs().max() < 1e-8
    got = mrope(x, positions, theta=theta, rotary_dim=rotary)
    assert (got - want).abs().max() < 1e-6


def test_axis_of_pair_i_is_i_mod_3():
    x = torch.zeros(1, 1, 12)
    x[..., :6] = 1
    for axis in range(3):
        positions = torch.zeros(3, 1, dtype=torch.int64)
        positions[axis] = 1
        moved = (mrope(x, positions, theta=10.0, rotary_dim=12) != x)[0, 0, :6]
        assert moved.nonzero().flatten().tolist() == [axis, axis + 3]


def test_dims_beyond_the_rotation_keep_their_bits():
    x = torch.randn(3, 2, 48).bfloat16()
    got = mrope(x, torch.full((3, 3), 777), theta=1e7, rotary_dim=32)
    assert torch.equal(got[..., 32:], x[..., 32:])
    assert not torch.equal(got[..., :32], x[..., :32])


def test_scores_depend_on_distance_only():
    q, k = torch.randn(2, 1, 1, 64, dtype=torch.float64)

    def score(p: int, s: int) -> float:
        at = [torch.full((3, 1), position) for position in (p, s)]
        turned_q = mrope(q, at[0], theta=1e6, rotary_dim=64)
        return float((turned_q * mrope(k, at[1], theta=1e6, rotary_dim=64)).sum())

    assert score(9, 2) == pytest.approx(score(100_007, 100_000), abs=1e-9)


def test_position_zero_changes_nothing():
    x = torch.randn(2, 3, 16)
    assert torch.equal(mrope(x, torch.zeros(3, 2, dtype=torch.int64), theta=1e4, rotary_dim=16), x)
