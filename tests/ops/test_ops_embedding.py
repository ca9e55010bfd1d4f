"""Embedding rows equal the rows of the whole decoded table, bit for bit."""

import pytest
import torch

from ninfer.formats import dequantise, quantise
from ninfer.ops import embed

FORMATS = ("Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S", "FP8_E4M3FN_ROW_BF16S")
IDS = torch.tensor([4, 0, 39, 4, 17])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMATS)
def test_packed_rows(form: str, dtype: torch.dtype):
    table = quantise(torch.randn(40, 100), form)
    got = embed(IDS, table, dtype=dtype)
    assert got.dtype is dtype
    assert torch.equal(got, dequantise(table, dtype)[IDS])


def test_dense_rows_are_rounded_to_the_type():
    table = torch.randn(40, 12)
    assert torch.equal(embed(IDS, table, dtype=torch.bfloat16), table[IDS].bfloat16())
    assert torch.equal(embed(IDS, table, dtype=torch.float32), table[IDS])


def test_rows_are_not_views_of_the_table():
    table = torch.randn(40, 12)
    kept = table.clone()
    embed(IDS, table, dtype=torch.float32).zero_()
    assert torch.equal(table, kept)


def test_only_the_rows_asked_for_are_decoded(monkeypatch: pytest.MonkeyPatch):
    table = quantise(torch.randn(40, 100), "Q6G64_F16S")
    seen = []
    original = type(table).dequantise

    def spy(self, dtype=torch.float32):
        seen.append(self.shape)
        return original(self, dtype)

    monkeypatch.setattr(type(table), "dequantise", spy)
    embed(IDS, table, dtype=torch.float32)
    assert seen == [(5, 100)]


@pytest.mark.parametrize("form", [None, "Q5G64_F16S", "FP8_E4M3FN_ROW_BF16S"])
@pytest.mark.parametrize("token", [-1, 40])
def test_id_outside_the_table_is_an_error(form: str | None, token: int):
    table = torch.randn(40, 64) if form is None else quantise(torch.randn(40, 64), form)
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        embed(torch.tensor([0, token]), table, dtype=torch.float32)
