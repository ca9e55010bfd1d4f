"""Published vectors of the numeric formats, and equality with the slow codecs bit for bit."""

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
import slow_codec as slow
import torch

from ninfer.formats import fp4, fp8, grouped, kv
from ninfer.formats.direct import to_direct
from ninfer.formats.minifloat import decode_e4m3, decode_nibbles, encode_e2m1, encode_e4m3
from ninfer.formats.swizzle import scale_position, swizzle, unswizzle

NAMES = list(slow.GROUPED)
Q4, Q5, Q6, W8 = NAMES


def words16(tensor: torch.Tensor) -> list[int]:
    return [int(w) & 0xFFFF for w in tensor.contiguous().view(torch.int16).flatten()]


def plane_object(planes: list[torch.Tensor], tail: bytes = b"") -> bytes:
    out = b""
    for plane in planes:
        out += bytes(-len(out) % 256) + plane.contiguous().view(torch.uint8).numpy().tobytes()
    return out + tail


def grouped_bytes(packed) -> bytes:
    planes = [packed.base, packed.high, packed.scales]
    return plane_object([plane for plane in planes if plane is not None])


@pytest.mark.parametrize(
    ("name", "lanes", "scale", "codes", "base"),
    [
        (Q4, [7, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, -7], 0x3C00,
         [7, 0, 0, 2, -2, 2, -2, -7], "07202e9e"),
        (Q4, [-8, 8, 4, -1], 0x3C92, [-7, 7, 4, -1], "79f4"),
        (Q5, [-8, 8, 4, -1], 0x3844, [-15, 15, 8, -2], "f1e8"),
        (Q6, [-8, 8, 4, -1], 0x3421, [-31, 31, 16, -4], "f1c0"),
        (W8, [-8, 8, 4, -1], 0x2C08, [-127, 127, 64, -16], "817f40f0"),
        (Q4, [2.0**-30, -(2.0**-24)], 0x0001, [0, -1], ""),
        (Q4, [2.0**-26], 0x0001, [0], ""),
        (Q4, [10 * 2.0**-24], 0x0001, [7], ""),
        (Q4, [0.022216796875, 0.0206298828125], 0x1A80, [7, 7], ""),
        (Q5, [0.2197265625, 0.03662109375], 0x2380, [15, 3], ""),
        (Q6, [0.84765625, 0.177734375], 0x2700, [31, 7], ""),
    ],
)  # fmt: skip
def test_group_vectors(name, lanes, scale, codes, base):
    packed = grouped.quantise(torch.tensor([lanes]), name)
    found, _ = grouped.unpack(packed)
    assert words16(packed.scales)[0] == scale
    assert found[0].tolist() == codes
    assert packed.base.numpy().tobytes().hex().startswith(base)
    assert not any(words16(packed.scales)[1:])


OBJECTS = {
    Q4: (272, "05a94489792e16f4f702ad4c1fe3d650767dcfafb910415890a9af5e40062c75",
         [-7, -4, -2, 0, 2, 4, 6, -6], [-1, 7], "c90e42a6ec2064ca0e42a6ec2064ca0e", None,
         "65349234922c0000653492346e340000"),
    Q5: (528, "32b6855815c4d7542dbeda089b0a0066435030eeb8566278c7eeb06d4ea6bc7c",
         [-14, -10, -5, 0, 4, 9, 13, -14], [-2, 15], "620b942db740d9720b953ec750e9730c",
         "87c3e170381c0e87c3e1783c1e8fc7e3", "1a304430442800001a30443022300000"),
    Q6: (528, "30116807ff8299376a668dedc9f76ac99f1a910d53059727b216135e744ef3f7",
         [-29, -20, -10, -1, 8, 18, 27, -28], [-5, 31], "c3f6284b6d9fb2d407395c7ea1c3e518",
         "fa943ea543e9503a940ea543f9503e94", "ef2b212c21240000ef2b212c002c0000"),
    W8: (544, "da4f757d3e00767262d064cdc4b1ff11492f21160e3681a155fc9c5fd26751a4",
         [-127, -86, -45, -4, 36, 77, 118, -125], [-20, 127], "81aad3fc244d7683acd5fe27507885ae",
         None, "3e23bf230824d023081c000000000000bf233e23bf230824d023000000000000"),
}  # fmt: skip


def pattern() -> torch.Tensor:
    n, k = torch.arange(2)[:, None], torch.arange(130)[None, :]
    return (((37 * k + 101 * n + 13) % 257) - 128).float() / 64


@pytest.mark.parametrize("name", NAMES)
def test_object_vectors(name):
    size, digest, first, partial, base, high, scales = OBJECTS[name]
    packed = grouped.quantise(pattern(), name)
    codes, _ = grouped.unpack(packed)
    assert codes[0, :8].tolist() == first
    assert codes[0, 128:130].tolist() == partial
    assert packed.base.numpy().tobytes()[:16].hex() == base
    assert (packed.high is None) == (high is None)
    assert high is None or packed.high.numpy().tobytes()[:16].hex() == high
    assert packed.scales.numpy().tobytes().hex() == scales
    whole = grouped_bytes(packed)
    assert (len(whole), hashlib.sha256(whole).hexdigest()) == (size, digest)
    assert whole == slow.grouped_object(*slow.encode_grouped(pattern().numpy(), name), name)


def test_partial_group_of_the_object_vector():
    row = {name: grouped.quantise(pattern(), name).base[0].flatten() for name in NAMES}
    starts = {Q4: (64, "7f00"), Q5: (64, "fe00"), Q6: (64, "fb00"), W8: (128, "ec7f00")}
    for name, (start, text) in starts.items():
        assert row[name].numpy().tobytes()[start:].hex().rstrip("0") == text.rstrip("0")


def test_nvfp4_vector():
    n = torch.arange(128)[:, None]
    codes = ((3 * n + torch.arange(128)) % 16).to(torch.uint8)
    words = (0x20 + (5 * n + 3 * torch.arange(8)) % 0x50).to(torch.uint8)
    packed = fp4.pack(codes, words, 0.75)
    whole = plane_object([packed.codes, packed.scales], bytes.fromhex("0000403f"))
    digest = "90e3f634c5d0670362d4a13173de934b8af4bc56d086c7888dd8c2d2a509417a"
    assert (len(whole), hashlib.sha256(whole).hexdigest()) == (9220, digest)
    assert whole[:8].hex() == "1032547698badcfe"
    assert whole == slow.nvfp4_object(codes.numpy(), words.numpy(), 0.75)
    found_codes, found_words = fp4.unpack(packed)
    assert torch.equal(found_codes, codes)
    assert torch.equal(found_words, words)


def test_fp8_vector():
    row = [1, -0.5, 0.3, 0, -3.5, 2, 2.0**-7, -(2.0**-4)]
    packed = fp8.quantise(torch.tensor([row, [0.0] * 8]))
    assert packed.codes.numpy().tobytes().hex() == "70e86200fe7838d0" + "00" * 8
    assert words16(packed.scales) == [0x3C00, 0]
    assert len(plane_object([packed.codes, packed.scales])) == 260


def test_bf16_rounding_vectors():
    values = torch.tensor([1.00390625, 1.01171875, -0.0, 3.3895314e38, 1e-40])
    assert words16(to_direct(values, "BF16")) == [0x3F80, 0x3F82, 0x8000, 0x7F7F, 0x0001]


def test_kv_int8_vector():
    values = torch.tensor([(((7 * i + 3) % 29) - 14) / 8 for i in range(64)]).bfloat16()
    words, scales = kv.encode("int8", values)
    assert words16(scales) == [0x230E]
    first = [-100, -36, 27, 91, -109, -45, 18, 82, -118, -54, 9, 73, -127, -64, 0, 64]
    assert words[:16].tolist() == first
    assert torch.equal(kv.decode("int8", words, scales), words.float() * scales.float())


def test_kv_fp8_vector():
    """The row of the int8 vector, by exact rational arithmetic over all codes."""
    values = torch.tensor([(((7 * i + 3) % 29) - 14) / 8 for i in range(64)]).bfloat16()
    words, scales = kv.encode("fp8", values)
    assert words16(scales) == [0x1C00]
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().tolist()
    inverse = Fraction(1, 1) / Fraction(0.00390625)
    for value, word in zip(values.tolist(), words.tolist(), strict=True):
        target = Fraction(value) * inverse
        errors = {c: abs(Fraction(v) - target) for c, v in enumerate(codes) if v == v}
        best = min(errors.values())
        near = [c for c, error in errors.items() if error == best]
        assert word in near and (len(near) == 1 or value == 0 or word % 2 == 0), value
    assert words[:8].tolist() == [0xFB, 0xF0, 0x6C, 0x7A, 0xFC, 0xF2, 0x68, 0x79]
    decoded = kv.decode("fp8", words, scales)
    assert torch.equal(decoded, words.view(torch.float8_e4m3fn).float() * scales.float())


HARD = {
    "subnormal": lambda x: x * 2.0**-136,
    "binary16 subnormal scales": lambda x: x * 2.0**-22,
    "huge": lambda x: x.clamp(-4, 4) * 1e5,
    "alternating": lambda x: torch.ones_like(x) * torch.tensor([1.0, -1.0]).repeat(x.shape[1])[
        : x.shape[1]
    ],
    "outlier": lambda x: x.scatter(1, torch.zeros(x.shape[0], 1, dtype=torch.int64), 1e4),
    "zero": torch.zeros_like,
    "negative zero": lambda x: torch.zeros_like(x).neg(),
    "random": lambda x: x,
    "bfloat16": lambda x: x.bfloat16().float(),
    "ties": lambda x: (x * 2).round() / 2,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [1, 63, 130, 256])
@pytest.mark.parametrize("case", HARD)
def test_grouped_equals_slow_codec(name, width, case):
    matrix = HARD[case](torch.randn(3, width))
    packed = grouped.quantise(matrix, name)
    codes, scales = slow.encode_grouped(matrix.numpy(), name)
    assert grouped_bytes(packed) == slow.grouped_object(codes, scales, name)
    expected = slow.grouped_values(codes, scales, name, width)
    assert packed.dequantise().numpy().tobytes() == expected.tobytes()
    packed.validate("w")


@pytest.mark.parametrize("case", [case for case in HARD if case != "subnormal"])
def test_fp8_equals_slow_codec(case):
    matrix = HARD[case](torch.randn(4, 70))
    packed = fp8.quantise(matrix)
    codes, words = slow.encode_fp8(matrix.numpy())
    assert packed.codes.numpy().tobytes() == codes.tobytes()
    assert words16(packed.scales) == words.tolist()
    table = np.array([slow.e4m3_value(code) for code in range(256)], np.float32)
    scale = np.array([slow.bf16_value(word) for word in words], np.float32)
    assert packed.dequantise().numpy().tobytes() == (scale[:, None] * table[codes]).tobytes()
    packed.validate("w")


def test_fp8_rows_below_the_reciprocal_range_keep_their_values():
    row = torch.tensor([[1.0, -0.5, 0.0, 0.25]]) * 2.0**-127
    packed = fp8.quantise(row)
    packed.validate("w")
    assert torch.equal(packed.dequantise(), row)


@pytest.mark.parametrize("case", HARD)
def test_nvfp4_equals_slow_codec(case):
    matrix = HARD[case](torch.randn(128, 64))
    packed = fp4.quantise(matrix)
    codes, words = slow.encode_nvfp4(matrix.numpy(), packed.divisor)
    tail = np.float32(packed.divisor).tobytes()
    found = plane_object([packed.codes, packed.scales], tail)
    assert found == slow.nvfp4_object(codes, words, packed.divisor)
    element = np.array([*slow.E2M1, *(-m for m in slow.E2M1)], np.float32)[codes]
    scale = np.repeat(np.array(slow.E4M3, np.float32)[words], 16, axis=1)
    expected = (element * scale) / np.float32(packed.divisor)
    assert packed.dequantise().numpy().tobytes() == expected.tobytes()
    packed.validate("w")


def test_e4m3_tables_and_rounding():
    codes = torch.arange(256, dtype=torch.uint8)
    values = decode_e4m3(codes)
    for code in range(256):
        expected = slow.e4m3_value(code)
        assert values[code] == expected or (math.isnan(expected) and values[code].isnan())
    finite = torch.tensor(slow.E4M3)
    middles = (finite[1:] + finite[:-1]) / 2
    probes = torch.cat([finite, middles, middles.nextafter(torch.tensor(0.0)),
                        middles.nextafter(torch.tensor(1e3)), torch.rand(2000) * 448])  # fmt: skip
    probes = torch.cat([probes, -probes])
    expected = [slow.signed_code(slow.E4M3, float(x), 0x80) for x in probes]
    assert encode_e4m3(probes).tolist() == expected


def test_e2m1_tables_and_rounding():
    every = torch.arange(16, dtype=torch.uint8)
    both = decode_nibbles(every | every << 4)
    assert both.tolist() == [m for v in (*slow.E2M1, *(-m for m in slow.E2M1)) for m in (v, v)]
    middles = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    probes = torch.cat([torch.tensor(slow.E2M1), middles, middles.nextafter(torch.tensor(0.0)),
                        middles.nextafter(torch.tensor(9.0)), torch.rand(2000) * 8])  # fmt: skip
    probes = torch.cat([probes, -probes])
    expected = [slow.signed_code(slow.E2M1, float(x), 8) for x in probes]
    assert encode_e2m1(probes).tolist() == expected


def test_scale_positions():
    grid = torch.arange(256 * 8).view(256, 8)
    flat = swizzle(grid)
    for row, column in [(0, 0), (0, 3), (0, 4), (31, 7), (32, 0), (127, 5), (128, 0), (255, 7)]:
        assert flat[scale_position(row, column, 8)] == grid[row, column]
    assert torch.equal(unswizzle(flat, 256), grid)
