"""The counter-based uniform numbers: published vectors, range, and spread."""

import pytest
import torch

from ninfer.ops import Purpose, uniform, uniform_bits


@pytest.mark.parametrize(
    ("seed", "position", "purpose", "bits"),
    [
        (0, 0, Purpose.PREFILL, 10946269),
        (0, 30, Purpose.PREFILL, 11054032),
        (0, 30, Purpose.DECODE, 10754464),
        (42, 31, Purpose.DECODE, 6536864),
        (7632647173703958409, 100, Purpose.ACCEPT, 4415161),
        (7632647173703958409, 104, Purpose.BONUS, 10246937),
    ],
)
def test_vectors(seed: int, position: int, purpose: Purpose, bits: int):
    assert uniform_bits(seed, position, purpose) == bits
    assert uniform(seed, position, purpose) == bits / 2**24


def test_seed_counts_modulo_two_to_the_64():
    assert uniform_bits(2**64 + 5, 1, 0) == uniform_bits(5, 1, 0)
    assert uniform_bits(-1, 1, 0) == uniform_bits(2**64 - 1, 1, 0)
    assert uniform_bits(2**63, 1, 0) != uniform_bits(0, 1, 0)


def test_numbers_are_exact_in_float32_and_below_one():
    drawn = [uniform(9, position, 1) for position in range(2000)]
    assert torch.tensor(drawn).tolist() == drawn
    assert all(0 <= u < 1 for u in drawn)


def test_each_argument_matters():
    base = uniform_bits(1, 2, 3, 4)
    assert base not in (uniform_bits(2, 2, 3, 4), uniform_bits(1, 3, 3, 4))
    assert base not in (uniform_bits(1, 2, 4, 4), uniform_bits(1, 2, 3, 5))


def test_spread_over_positions():
    counts = torch.zeros(16)
    for position in range(16_000):
        counts[int(uniform(3, position, 1) * 16)] += 1
    # The 0.999 quantile of chi-square with 15 degrees of freedom.
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 37.7
