"""Slow codecs written from the format rules in plain Python and numpy, sharing no code with ninfer.

They walk one group at a time with numpy scalars, whose operations round as IEEE demands.
"""

import math
import struct

import numpy as np

GROUPED = {  # name: bits, group, qmin, qmax
    "Q4G64_F16S": (4, 64, -8, 7),
    "Q5G64_F16S": (5, 64, -16, 15),
    "Q6G64_F16S": (6, 64, -32, 31),
    "W8G32_F16S": (8, 32, -127, 127),
}
F32 = np.float32


def e4m3_value(code: int) -> float:
    """Value of an E4M3FN byte by its definition."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, fraction = (code >> 3) & 15, code & 7
    if exponent == 15 and fraction == 7:
        return math.nan
    if exponent == 0:
        return sign * fraction * 2.0**-9
    return sign * (1 + fraction / 8) * 2.0 ** (exponent - 7)


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E4M3 = tuple(e4m3_value(code) for code in range(0x7F))


def nearest_code(magnitudes: tuple[float, ...], value: float) -> int:
    """Index of the nearest magnitude; ties go to the even index, beyond the last saturates."""
    size = abs(float(value))
    best = min(range(len(magnitudes)), key=lambda i: (abs(magnitudes[i] - size), i % 2))
    return best


def signed_code(magnitudes: tuple[float, ...], value: float, sign_bit: int) -> int:
    """Code with its sign bit, kept for values that round to zero."""
    return nearest_code(magnitudes, value) | (sign_bit if math.copysign(1, value) < 0 else 0)


def round_half_even(value: float) -> int:
    """Python's own rounding, which is half to even."""
    return round(float(value))


def encode_group(lanes: np.ndarray, qmin: int, qmax: int) -> tuple[np.float16, list[int]]:
    """Scale and codes of one group of float32 lanes."""
    amax = F32(max(abs(F32(x)) for x in lanes))
    if amax == 0:
        return np.float16(0), [0] * len(lanes)
    scale = np.float16(F32(amax / F32(qmax)))
    if scale == 0:
        scale = np.uint16(1).view(np.float16)
    inverse = F32(F32(1) / F32(scale))
    codes = [min(max(round_half_even(F32(x * inverse)), qmin), qmax) for x in lanes]
    return scale, codes


def encode_grouped(matrix: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes [N, K_pad] and scales [N, groups] of a float32 matrix."""
    _, group, qmin, qmax = GROUPED[name]
    rows, width = matrix.shape
    padded = -(-width // 128) * 128
    codes = np.zeros((rows, padded), np.int64)
    scales = np.zeros((rows, padded // group), np.float16)
    for n in range(rows):
        for g in range(-(-width // group)):
            span = slice(g * group, min((g + 1) * group, width))
            scales[n, g], found = encode_group(matrix[n, span], qmin, qmax)
            codes[n, span] = found
    return codes, scales


def grouped_object(codes: np.ndarray, scales: np.ndarray, name: str) -> bytes:
    """Bytes of a row-split object, built bit by bit."""
    bits, group, _, _ = GROUPED[name]
    base, high = bytearray(), bytearray()
    for row in codes:
        for start in range(0, len(row), group):
            lanes = [int(code) & ((1 << bits) - 1) for code in row[start : start + group]]
            if bits == 8:
                base += bytes(lanes)
                continue
            base += bytes((lanes[i] & 15) | (lanes[i + 1] & 15) << 4 for i in range(0, group, 2))
            stream = 0
            for i, lane in enumerate(lanes):
                stream |= (lane >> 4) << (i * (bits - 4))
            high += stream.to_bytes(group * (bits - 4) // 8, "little")
    out = bytes(base) + bytes(-len(base) % 256)
    out += bytes(high) + bytes(-len(high) % 256)
    return out + scales.astype("<f2").tobytes()


def grouped_values(codes: np.ndarray, scales: np.ndarray, name: str, width: int) -> np.ndarray:
    """Float32 values of codes and scales."""
    group = GROUPED[name][1]
    wide = np.repeat(scales.astype(np.float32), group, axis=1)
    return (wide * codes.astype(np.float32))[:, :width]


def encode_fp8(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes [N, K] and bfloat16 scale words [N] of a float32 matrix with normal scales."""
    codes = np.zeros(matrix.shape, np.uint8)
    words = np.zeros(matrix.shape[0], np.uint16)
    for n, row in enumerate(matrix):
        amax = F32(max(abs(F32(x)) for x in row))
        if amax == 0:
            continue
        words[n] = max(bf16_word(F32(amax / F32(448))), 1)
        inverse = F32(F32(1) / bf16_value(words[n]))
        for k, x in enumerate(row):
            scaled = min(max(F32(x * inverse), F32(-448)), F32(448))
            codes[n, k] = signed_code(E4M3, scaled, 0x80)
    return codes, words


def bf16_word(value: np.float32) -> int:
    """Bfloat16 word of a finite float32, nearest even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def bf16_value(word: int) -> np.float32:
    """Float32 value of a bfloat16 word."""
    return F32(struct.unpack("<f", struct.pack("<I", int(word) << 16))[0])


def encode_nvfp4(matrix: np.ndarray, divisor: float) -> tuple[np.ndarray, np.ndarray]:
    """Codes [N, K] and row-major scale words [N, K / 16] under a given divisor."""
    rows, width = matrix.shape
    codes = np.zeros((rows, width), np.uint8)
    words = np.zeros((rows, width // 16), np.uint8)
    d = F32(divisor)
    for n in range(rows):
        for g in range(width // 16):
            lanes = matrix[n, g * 16 : g * 16 + 16]
            amax = F32(max(abs(F32(x)) for x in lanes))
            words[n, g] = nearest_code(E4M3, min(F32(F32(amax * d) / F32(6)), F32(448)))
            scale = F32(E4M3[words[n, g]])
            if scale == 0:
                continue
            for i, x in enumerate(lanes):
                codes[n, g * 16 + i] = signed_code(E2M1, F32(F32(x * d) / scale), 8)
    return codes, words


def nvfp4_object(codes: np.ndarray, words: np.ndarray, divisor: float) -> bytes:
    """Bytes of a block-scale object, each scale put at its position one by one."""
    rows, width = codes.shape
    tiles = width // 64
    plane = bytearray(rows * width // 16)
    for n in range(rows):
        for g in range(width // 16):
            position = ((n // 128) * tiles + g // 4) * 512
            position += (n % 32) * 16 + ((n % 128) // 32) * 4 + g % 4
            plane[position] = words[n, g]
    packed = bytes(int(row[k]) | int(row[k + 1]) << 4 for row in codes for k in range(0, width, 2))
    return packed + bytes(-len(packed) % 256) + bytes(plane) + struct.pack("<f", divisor)
