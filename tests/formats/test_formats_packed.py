"""Packed matrices: rows, devices, rounding, validation and encoder errors; KV rows; the table."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.errors import FormatError, PayloadError
from ninfer.formats import FORMATS, fp4, fp8, grouped, kv, numeric_format, packed, quantise
from ninfer.formats.direct import to_direct

GROUPED = ["Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S"]
PACKED = [*GROUPED, "NVFP4", "FP8_E4M3FN_ROW_BF16S"]


def same(left, right) -> bool:
    return torch.equal(left.dequantise(), right.dequantise()) and left.shape == right.shape


@pytest.mark.parametrize("name", PACKED)
def test_rows_are_views_of_the_same_values(name):
    matrix = quantise(torch.randn(384, 192), name)
    part = matrix.rows(128, 384)
    whole = matrix.dequantise()
    assert part.shape == (256, 192)
    assert torch.equal(part.dequantise(), whole[128:384])
    first = part.base if isinstance(part, packed.GroupedMatrix) else part.codes
    parent = matrix.base if isinstance(part, packed.GroupedMatrix) else matrix.codes
    assert first.untyped_storage().data_ptr() == parent.untyped_storage().data_ptr()
    assert part.nbytes * 3 == matrix.nbytes * 2
    with pytest.raises(FormatError, match="rows 0:385 lie outside a matrix of 384 rows"):
        matrix.rows(0, 385)


def test_rows_of_other_borders():
    matrix = quantise(torch.randn(5, 130), "Q5G64_F16S")
    assert torch.equal(matrix.rows(2, 3).dequantise(), matrix.dequantise()[2:3])
    assert matrix.rows(4, 4).dequantise().shape == (0, 130)
    blocks = quantise(torch.randn(256, 64), "NVFP4")
    with pytest.raises(FormatError, match=r"rows 64:128 of an NVFP4 matrix .* 128-row borders"):
        blocks.rows(64, 128)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dequantise_rounds_the_float32_value_once(name, dtype):
    matrix = quantise(torch.randn(128, 64), name)
    assert matrix.dequantise(dtype).dtype == dtype
    assert torch.equal(matrix.dequantise(dtype), matrix.dequantise().to(dtype))


@pytest.mark.parametrize("name", PACKED)
def test_block_borders_change_nothing(name, monkeypatch):
    source = torch.randn(384, 192)
    whole = quantise(source, name)
    expected = whole.dequantise()
    monkeypatch.setattr(packed, "_CPU_BLOCK", 1000)
    assert same(quantise(source, name), whole)
    assert torch.equal(whole.dequantise(), expected)
    whole.validate("w")


@pytest.mark.parametrize("name", PACKED)
def test_devices_and_sizes(name):
    matrix = quantise(torch.randn(128, 128), name)
    assert matrix.format == name
    assert matrix.device == torch.device("cpu")
    assert same(matrix.to("cpu"), matrix)
    meta = matrix.to("meta")
    assert (meta.device.type, meta.nbytes) == ("meta", matrix.nbytes)
    row_scales = 128 * 2 if name.startswith("FP8") else 0
    assert matrix.nbytes == 128 * 128 * FORMATS[name].bits_per_weight / 8 + row_scales


@pytest.mark.parametrize("name", PACKED)
def test_bfloat16_sources_equal_their_float32_form(name):
    source = torch.randn(128, 192).bfloat16()
    assert same(quantise(source, name), quantise(source.float(), name))


@pytest.mark.parametrize("name", GROUPED)
def test_grouped_pack_and_unpack(name):
    entry = numeric_format(name)
    codes = torch.randint(entry.qmin, entry.qmax + 1, (3, 70), dtype=torch.int8)
    scales = torch.rand(3, -(-70 // entry.group)).half()
    matrix = grouped.pack(codes, scales, name)
    found_codes, found_scales = grouped.unpack(matrix)
    assert torch.equal(found_codes, codes)
    assert torch.equal(found_scales, scales)
    matrix.validate("w")
    with pytest.raises(FormatError, match=f"codes must lie in {entry.qmin}..{entry.qmax}"):
        grouped.pack(codes.to(torch.int16) * 0 + entry.qmin - 1, scales, name)


def test_parts_of_a_fused_parent_have_the_bytes_of_their_rows():
    source = torch.randn(6, 200)
    parent = quantise(source, "Q6G64_F16S")
    part = quantise(source[2:4], "Q6G64_F16S")
    assert torch.equal(parent.rows(2, 4).base, part.base)
    assert torch.equal(parent.rows(2, 4).scales, part.scales)


BAD_VALUES = {"nan": math.nan, "inf": math.inf, "minus inf": -math.inf}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
def test_values_that_are_not_finite_are_refused(name, value):
    source = torch.randn(256, 64)
    source[200, 40] = value
    with pytest.raises(FormatError, match=r"text/w: .*not finite"):
        quantise(source, name, "text/w")


def test_other_refusals():
    with pytest.raises(FormatError, match=r"text/w: row 1, columns from 64: magnitude 1e\+06 is"):
        source = torch.zeros(2, 128)
        source[1, 70] = 1e6
        quantise(source, "Q4G64_F16S", "text/w")
    with pytest.raises(FormatError, match=r"w: NVFP4 needs rows .* got 100 x 64"):
        quantise(torch.zeros(100, 64), "NVFP4", "w")
    with pytest.raises(FormatError, match="w: divisor 0 is not positive"):
        fp4.quantise(torch.zeros(128, 64), "w", divisor=0)
    with pytest.raises(FormatError, match="w: a value is not finite"):
        fp4.quantise(torch.full((128, 64), math.nan), "w", divisor=1.0)
    with pytest.raises(FormatError, match="BF16 stores plain words"):
        quantise(torch.zeros(1, 1), "BF16")
    with pytest.raises(FormatError, match="unknown numeric format 'Q3'; known: BF16, "):
        numeric_format("Q3")


@pytest.mark.parametrize("word", [0x7E00, 0x7C00, 0xFC00, 0x8000, 0x8001, 0xBC00])
@pytest.mark.parametrize("name", GROUPED)
def test_bad_group_scales_are_found(name, word):
    matrix = quantise(torch.randn(3, 130), name)
    matrix.scales.view(torch.int16)[1, 2] = word - 0x10000 if word >= 0x8000 else word
    with pytest.raises(PayloadError, match=rf"text/w: scale \[1, 2\] is .*word {word:#06x}"):
        matrix.validate("text/w")


def test_bad_grouped_codes_are_found():
    matrix = quantise(torch.randn(3, 130), "W8G32_F16S")
    matrix.base[1, 2, 3] = 0x80
    with pytest.raises(PayloadError, match=r"w: code \[1, 67\] is -128; .* are -127..127"):
        matrix.validate("w")
    matrix = quantise(torch.randn(3, 130), "Q5G64_F16S")
    matrix.scales[2, 1] = 0
    with pytest.raises(PayloadError, match=r"w: group \[2, 1\] has scale 0 and codes"):
        matrix.validate("w")
    matrix = quantise(torch.randn(3, 130), "Q4G64_F16S")
    matrix.scales[0, 3] = 1
    with pytest.raises(PayloadError, match="w: padding beyond column 130 is not zero"):
        matrix.validate("w")
    matrix = quantise(torch.randn(3, 130), "Q4G64_F16S")
    matrix.base[0, 2, 9] = 1
    with pytest.raises(PayloadError, match="w: padding beyond column 130 is not zero"):
        matrix.validate("w")


@pytest.mark.parametrize("word", [0x7F, 0x80, 0x81, 0xFF])
def test_bad_block_scales_are_found(word):
    matrix = quantise(torch.randn(128, 128), "NVFP4")
    matrix.scales[512 + 16] = word  # tile 1, row 1, column 4
    with pytest.raises(PayloadError, match=rf"w: block scale \[1, 4\] has word {word:#04x}"):
        matrix.validate("w")


@pytest.mark.parametrize("divisor", [0.0, -1.0, math.nan, math.inf])
def test_bad_divisors_are_found(divisor):
    matrix = replace(quantise(torch.randn(128, 64), "NVFP4"), divisor=divisor)
    with pytest.raises(PayloadError, match=r"w: divisor is .* greater than 0"):
        matrix.validate("w")


def test_bad_fp8_rows_are_found():
    for word in (0x7F, 0xFF):
        matrix = quantise(torch.randn(3, 40), "FP8_E4M3FN_ROW_BF16S")
        matrix.codes[2, 39] = word
        with pytest.raises(PayloadError, match=r"w: code \[2, 39\] is NaN"):
            matrix.validate("w")
    for value in (math.nan, math.inf, -1.0, -0.0):
        matrix = quantise(torch.randn(3, 40), "FP8_E4M3FN_ROW_BF16S")
        matrix.scales[1] = value
        with pytest.raises(PayloadError, match=r"w: scale \[1\] is "):
            matrix.validate("w")
    matrix = quantise(torch.randn(3, 40), "FP8_E4M3FN_ROW_BF16S")
    matrix.scales[1] = 0
    with pytest.raises(PayloadError, match="w: row 1 has scale 0 and codes"):
        matrix.validate("w")
    matrix.codes[1] = 0x80
    matrix.validate("w")


def group_bound(source: torch.Tensor, name: str) -> torch.Tensor:
    """Largest error of each entry: half a step, and what rounding or rescuing the scale costs."""
    entry = numeric_format(name)
    group = entry.group
    amax = torch.nn.functional.pad(source.abs(), (0, -source.shape[1] % group))
    amax = amax.unflatten(1, (-1, group)).amax(-1).repeat_interleave(group, 1)
    amax = amax[:, : source.shape[1]].double()
    # The scale is off by 2**-11 of itself, or by half the least binary16 step.
    return amax * (0.5 / entry.qmax + 2.0**-10) + (entry.qmax + 1) * 2.0**-25


@settings(max_examples=60)
@given(
    name=st.sampled_from(GROUPED),
    rows=st.integers(1, 4),
    width=st.integers(1, 300),
    exponent=st.integers(-140, 12),
    seed=st.integers(0, 2**31),
)
def test_grouped_error_bound(name, rows, width, exponent, seed):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randn(rows, width, generator=generator).clamp(-7, 7) * 2.0**exponent
    matrix = quantise(source, name)
    matrix.validate("w")
    error = (matrix.dequantise().double() - source.double()).abs()
    assert bool((error <= group_bound(source, name)).all())


@settings(max_examples=30)
@given(exponent=st.integers(-100, 100), seed=st.integers(0, 2**31))
def test_float_error_bounds(exponent, seed):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randn(128, 64, generator=generator) * 2.0**exponent
    rows = source.abs().amax(1, keepdim=True).double()
    error = (fp8.quantise(source).dequantise().double() - source.double()).abs()
    assert bool((error <= rows * (2.0**-4 + 2.0**-8)).all())
    blocks = source.abs().view(128, 4, 16).amax(-1).repeat_interleave(16, 1).double()
    error = (fp4.quantise(source).dequantise().double() - source.double()).abs()
    # A sixth for the step from 4 to 6; 2**-4 of the largest for the rounding of the block scale.
    assert bool((error <= blocks * (1 / 6 + 2.0**-4)).all())


def test_divisor_choice():
    assert fp4.choose_divisor(0.0) == 1.0
    assert fp4.choose_divisor(2688.0) == 1.0
    assert math.isfinite(fp4.choose_divisor(1e-40))


def test_direct_words():
    words = torch.tensor([0x7F81, -1, 0x7FC0], dtype=torch.int16).view(torch.bfloat16)
    assert to_direct(words, "BF16") is words
    assert to_direct(words, "FP32").dtype == torch.float32
    assert to_direct(torch.tensor([5, -5]), "I32").tolist() == [5, -5]
    with pytest.raises(FormatError, match="ids: a value does not fit I32"):
        to_direct(torch.tensor([2**31]), "I32", "ids")
    with pytest.raises(FormatError, match="no exact meaning as I32"):
        to_direct(torch.tensor([1.0]), "I32")
    with pytest.raises(FormatError, match="no exact meaning as BF16"):
        to_direct(torch.tensor([1]), "BF16")
    with pytest.raises(FormatError, match="NVFP4 is not a direct format"):
        to_direct(torch.tensor([1.0]), "NVFP4")


@pytest.mark.parametrize("dim", [16, 64, 100, 256])
def test_kv_rows(dim):
    rows = torch.randn(5, 3, dim)
    for name, dtype in [("bf16", torch.bfloat16), ("fp32", torch.float32)]:
        words, scales = kv.encode(name, rows)
        assert (words.dtype, scales) == (dtype, None)
        assert torch.equal(kv.decode(name, words), rows.to(dtype).float())
    words, scales = kv.encode("int8", rows)
    entry = kv.kv_format("int8")
    assert (words.dtype, words.shape) == (kv.word_dtype("int8"), rows.shape)
    assert scales.shape == (5, 3, entry.scale_groups(dim))
    error = (kv.decode("int8", words, scales) - rows).abs()
    assert bool((error <= rows.abs().amax(-1, keepdim=True) * (0.5 / 127 + 2.0**-10)).all())
    stored = words.nbytes + scales.nbytes
    assert entry.bytes_per_token(3, dim) * 5 == 2 * stored
    one, one_scale = kv.encode("int8", rows[2])
    assert torch.equal(one, words[2])
    assert torch.equal(one_scale, scales[2])


def test_kv_extremes():
    words, scales = kv.encode("int8", torch.zeros(64))
    assert not words.any()
    assert kv.decode("int8", words, scales).eq(0).all()
    words, scales = kv.encode("int8", torch.full((64,), 1e8))
    assert kv.decode("int8", words, scales).tolist() == [127 * 65504.0] * 64
    words, scales = kv.encode("int8", torch.full((64,), 1e-9))
    assert kv.decode("int8", words, scales).abs().max() <= 2.0**-24
    for value in (math.nan, math.inf):
        row = torch.zeros(128)
        row[70] = value
        found = kv.decode("int8", *kv.encode("int8", row))
        assert not found[70].isfinite()
        assert found[:64].eq(0).all()
    with pytest.raises(FormatError, match="unknown KV cache format 'int3'; known: bf16, fp32"):
        kv.encode("int3", torch.zeros(64))


@pytest.mark.parametrize("dim", [16, 64, 100, 256])
def test_kv_int4_rows(dim):
    rows = torch.randn(5, 3, dim)
    words, scales = kv.encode("int4", rows)
    entry = kv.kv_format("int4")
    assert (words.dtype, words.shape) == (torch.uint8, (5, 3, dim // 2)) and words.is_contiguous()
    assert scales.shape == (5, 3, entry.scale_groups(dim))
    error = (kv.decode("int4", words, scales) - rows).abs()
    assert bool((error <= rows.abs().amax(-1, keepdim=True) * (0.5 / 7 + 2.0**-10)).all())
    stored = words.nbytes + scales.nbytes
    assert entry.bytes_per_token(3, dim) * 5 == 2 * stored
    one, one_scale = kv.encode("int4", rows[2])
    assert torch.equal(one, words[2]) and torch.equal(one_scale, scales[2])


def test_kv_int4_words():
    """Two codes a byte, the even place low; halves go to the even code."""
    row = torch.tensor([7.0, -7, 0.5, 1.5, -0.5, -1.5, 2, -3] + [0.0] * 56)
    words, scales = kv.encode("int4", row)
    assert scales.tolist() == [1.0]
    assert words[:4].tolist() == [0x97, 0x20, 0xE0, 0xD2] and not words[4:].any()
    codes = [7.0, -7, 0, 2, 0, -2, 2, -3]
    assert kv.decode("int4", words, scales).tolist() == codes + [0.0] * 56
    words, scales = kv.encode("int4", torch.full((64,), -1e8))
    assert kv.decode("int4", words, scales).tolist() == [-7 * 65504.0] * 64
    for value in (math.nan, math.inf):
        spoiled = torch.zeros(128)
        spoiled[70] = value
        found = kv.decode("int4", *kv.encode("int4", spoiled))
        assert not found[70].isfinite() and found[:64].eq(0).all()
    with pytest.raises(FormatError, match="int4 stores 2 numbers a word: heads of 63 do not fill"):
        kv.encode("int4", torch.zeros(63))


@pytest.mark.parametrize("dim", [16, 64, 100, 256, 320])
def test_kv_fp8_rows(dim):
    rows = torch.randn(5, 3, dim)
    words, scales = kv.encode("fp8", rows)
    entry = kv.kv_format("fp8")
    assert (words.dtype, words.shape) == (torch.uint8, rows.shape) and words.is_contiguous()
    assert scales.shape == (5, 3, -(-dim // 256))
    found = kv.decode("fp8", words, scales)
    # Half a step of three mantissa bits, or of the least code, and the rounding of the scale.
    least = rows.abs().amax(-1, keepdim=True) / 448 * 2.0**-10 * 1.01
    assert bool(((found - rows).abs() <= rows.abs() * (2.0**-4 + 2.0**-11) + least).all())
    stored = words.nbytes + scales.nbytes
    assert entry.bytes_per_token(3, dim) * 5 == 2 * stored
    one, one_scale = kv.encode("fp8", rows[2])
    assert torch.equal(one, words[2]) and torch.equal(one_scale, scales[2])


def test_kv_fp8_extremes():
    for tiny in (0.0, 1e-12):
        words, scales = kv.encode("fp8", torch.full((256,), tiny))
        assert scales.tolist() == [2.0**-24]
        assert kv.decode("fp8", words, scales).eq(0).all()
    words, scales = kv.encode("fp8", torch.full((256,), -1e9))
    assert kv.decode("fp8", words, scales).tolist() == [-448 * 65504.0] * 256
    for value in (math.nan, math.inf, -math.inf):
        rows = torch.ones(2, 256)
        rows[1, 70] = value
        found = kv.decode("fp8", *kv.encode("fp8", rows))
        assert not found[1, 70].isfinite()
        assert (found[0] - 1).abs().max() < 1e-3


def test_table():
    bits = {name: FORMATS[name].bits_per_weight for name in GROUPED}
    assert list(bits.values()) == [4.25, 5.25, 6.25, 8.5]
    assert [len(FORMATS[name].legal_codes()) for name in GROUPED] == [16, 32, 64, 255]
    assert kv.kv_format("int8").bytes_per_token(4, 256) == 2 * 4 * (256 + 8)


def test_names_cost_no_torch():
    source = (
        "import sys, ninfer.formats, ninfer.formats.registry, ninfer.artifact.layouts,"
        " ninfer.artifact.directory, ninfer.artifact.describe, ninfer.artifact.framing;"
        " sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", source], timeout=240).returncode == 0
