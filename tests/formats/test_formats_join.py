"""Matrices cut into rows and put together again hold the same words."""

import pytest
import torch

from ninfer.errors import FormatError
from ninfer.formats import dequantise, join_rows, quantise

PACKED = ["Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S", "NVFP4", "FP8_E4M3FN_ROW_BF16S"]


@pytest.mark.parametrize("format", PACKED)
def test_rows_apart_and_together(format: str) -> None:
    whole = quantise(torch.randn(512, 192), format)
    parts = [whole.rows(256, 512), whole.rows(0, 128), whole.rows(128, 256)]
    values = dequantise(whole)
    wanted = torch.cat([values[256:], values[:256]])
    joined = join_rows(parts)
    assert joined.shape == (512, 192)
    joined.validate("joined")
    assert torch.equal(dequantise(joined), wanted)


def test_plain_tensors() -> None:
    whole = torch.randn(6, 4)
    assert torch.equal(join_rows([whole[4:], whole[:4]]), torch.cat([whole[4:], whole[:4]]))


def test_a_single_part_is_not_copied() -> None:
    matrix = quantise(torch.randn(4, 64), "Q4G64_F16S")
    assert join_rows([matrix]) is matrix


def test_parts_that_are_not_one_matrix() -> None:
    q4 = quantise(torch.randn(128, 64), "Q4G64_F16S")
    wide = quantise(torch.randn(128, 128), "Q4G64_F16S")
    nvfp4 = quantise(torch.randn(128, 64), "NVFP4")
    other = quantise(torch.randn(128, 64) * 9, "NVFP4")
    dense = torch.zeros(2, 64)
    cases = [
        ([q4, dense], r"as Q4G64_F16S of width 64 and as torch\.float32 of width \[64\]"),
        ([q4, wide], "of width 64 and as Q4G64_F16S of width 128 cannot be one matrix"),
        ([dense, dense.bfloat16()], r"torch\.float32 .* torch\.bfloat16"),
        ([nvfp4, other], r"with divisor .* and as NVFP4 .* with divisor"),
    ]
    for parts, message in cases:
        with pytest.raises(FormatError, match=message):
            join_rows(parts)
