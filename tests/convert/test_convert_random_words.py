"""Matrices drawn as words: legal in every format, of the size asked for, the same for one seed."""

import pytest
import torch

from ninfer.convert.random_words import random_matrix

PACKED = ("Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S", "NVFP4", "FP8_E4M3FN_ROW_BF16S")
GROUPED = PACKED[:4]


def drawn(format: str, shape: tuple[int, int], seed: int = 0, spread: float = 0.02):
    return random_matrix(format, shape, spread, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("format", PACKED)
@pytest.mark.parametrize("seed", range(3))
def test_words_are_legal_and_of_the_size_asked_for(format: str, seed: int) -> None:
    matrix = drawn(format, (256, 512), seed)
    matrix.validate("m")
    values = matrix.dequantise()
    assert values.square().mean().sqrt().item() == pytest.approx(0.02, rel=0.1)
    assert abs(values.mean().item()) < 0.004
    # No row repeats another, so nothing was drawn once and copied.
    assert len(values.unique(dim=0)) == 256


@pytest.mark.parametrize("format", GROUPED)
@pytest.mark.parametrize("width", [1, 63, 64, 65, 130, 4304])
def test_padding_is_zero(format: str, width: int) -> None:
    matrix = drawn(format, (8, width))
    matrix.validate("m")
    assert matrix.dequantise()[:, -1].any()


def test_every_legal_code_is_drawn() -> None:
    codes = drawn("W8G32_F16S", (256, 1024)).base.view(torch.int8).unique()
    assert codes.tolist() == list(range(-127, 128))
    words = drawn("FP8_E4M3FN_ROW_BF16S", (256, 1024)).codes.unique()
    assert words.tolist() == [word for word in range(256) if word & 0x7F != 0x7F]
    assert len(drawn("NVFP4", (128, 1024)).scales.unique()) == 16


@pytest.mark.parametrize("format", PACKED)
def test_one_seed_gives_one_matrix(format: str) -> None:
    first, again, other = (drawn(format, (128, 128), seed).dequantise() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
