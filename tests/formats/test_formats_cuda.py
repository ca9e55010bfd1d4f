"""On a CUDA device the codecs make and read the same words as on the host, bit for bit."""

import pytest
import torch

from ninfer.formats import kv, packed, quantise

pytestmark = pytest.mark.gpu

PACKED = ["Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S", "NVFP4", "FP8_E4M3FN_ROW_BF16S"]
# Each exponent gives other scales, subnormal ones included, where a fast division would show.
EXPONENTS = [-140, -125, -22, -3, 0, 8, 11]


def planes(matrix: packed.PackedMatrix) -> list[torch.Tensor]:
    if isinstance(matrix, packed.GroupedMatrix):
        found = [matrix.base, matrix.scales.view(torch.int16)]
        return found if matrix.high is None else [*found, matrix.high]
    scales = matrix.scales
    return [matrix.codes, scales.view(torch.int16) if scales.dtype.is_floating_point else scales]


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("name", PACKED)
def test_words_and_values(name, exponent, monkeypatch):
    source = torch.randn(512, 640).clamp(-4, 4) * 2.0**exponent
    source[7] = 0
    host = quantise(source, name)
    device = quantise(source.cuda(), name)
    assert device.device.type == "cuda"
    for left, right in zip(planes(host), planes(device), strict=True):
        assert torch.equal(left, right.cpu())
    assert getattr(host, "divisor", None) == getattr(device, "divisor", None)
    device.validate("w")
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        assert torch.equal(host.dequantise(dtype), device.dequantise(dtype).cpu())
    assert torch.equal(host.rows(128, 384).dequantise(), device.rows(128, 384).dequantise().cpu())
    monkeypatch.setattr(packed, "_DEVICE_BLOCK", 1 << 17)
    assert torch.equal(host.dequantise(), host.to("cuda").dequantise().cpu())


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("name", ["bf16", "fp32", "int8", "fp8", "int4"])
def test_kv_rows_on_the_device(name, exponent):
    rows = torch.randn(300, 4, 256) * 2.0**exponent
    words, scales = kv.encode(name, rows)
    device_words, device_scales = kv.encode(name, rows.cuda())
    assert torch.equal(words, device_words.cpu())
    assert (scales is None) == (device_scales is None)
    if scales is not None:
        assert torch.equal(scales, device_scales.cpu())
    expected = kv.decode(name, words, scales)
    assert torch.equal(kv.decode(name, device_words, device_scales).cpu(), expected)
