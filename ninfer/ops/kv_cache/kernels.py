"""Triton kernels of the KV cache: head rows into stored words, bit for bit the codec's, and back.

Roundings are written out, because the interpreter has none for bf16 and cards before sm_89 none for
E4M3. No launch lets the compiler fuse a product with a sum, which would round only once.
"""

import triton
import triton.language as tl

from ninfer.ops.linear.unpack import decode_e4m3

FP32 = tl.constexpr(0)
BF16 = tl.constexpr(1)
INT8 = tl.constexpr(2)
FP8 = tl.constexpr(3)
INT4 = tl.constexpr(4)  # two codes a byte

_MOST_SCALE = tl.constexpr(65504.0)
_LEAST_SCALE = tl.constexpr(2.0**-24)
# Added and taken off again, it rounds magnitudes below 2**22 to whole numbers, ties to even.
_WHOLE = tl.constexpr(12582912.0)


@triton.jit
def _round(x):
    return (x + _WHOLE) - _WHOLE


@triton.jit
def _to_bf16(x):
    """Float32 values as the int16 words of the nearest bf16; ties go to the even word."""
    bits = x.to(tl.int32, bitcast=True)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return tl.where(x == x, rounded, 0x7FC0).to(tl.int16)


@triton.jit
def _to_e4m3(x):
    """Float32 values in -448..448 as E4M3FN words; ties go to the even word, NaN is 0x7f."""
    size = tl.abs(x)
    bits = size.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    small = _round(tl.minimum(size, 1.0) * 512.0).to(tl.int32)
    code = tl.where(size < 2.0**-6, small, normal)
    code = tl.where(x == x, code, 0x7F)
    return code | ((x.to(tl.int32, bitcast=True) >> 24) & 0x80)


@triton.jit
def _encode(x, FORM: tl.constexpr):
    """Codes [G, N] and binary16 multipliers [G] of groups [G, N]."""
    is_number = x == x
    amax = tl.max(tl.where(is_number, tl.abs(x), 0.0), 1)
    spoiled = tl.max(tl.where(is_number, 0, 1), 1) > 0
    limit: tl.constexpr = 448.0 if FORM == FP8 else (7.0 if FORM == INT4 else 127.0)
    raw = tl.minimum(tl.div_rn(amax, tl.zeros_like(amax) + limit), _MOST_SCALE)
    if FORM == FP8:
        raw = tl.maximum(raw, _LEAST_SCALE)
    scale = raw.to(tl.float16).to(tl.float32)
    scale = tl.where((scale == 0.0) & (amax > 0.0), _LEAST_SCALE, scale)
    scale = tl.where(amax == float("inf"), float("inf"), scale)
    scale = tl.where(spoiled, float("nan"), scale)
    safe = tl.where(scale == 0.0, 1.0, scale)
    inverse = tl.where(scale == 0.0, 0.0, tl.div_rn(tl.zeros_like(safe) + 1.0, safe))
    scaled = x * inverse[:, None]
    is_number = scaled == scaled
    held = tl.minimum(tl.maximum(tl.where(is_number, scaled, 0.0), -limit), limit)
    if FORM == FP8:
        codes = _to_e4m3(tl.where(is_number, held, scaled))
    else:
        codes = _round(held).to(tl.int32)
    return codes, scale.to(tl.float16)


@triton.jit
def _write(
    x,
    words,
    scales,
    row,
    DIM: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    FORM: tl.constexpr,
    G: tl.constexpr,
    N: tl.constexpr,
):
    """One head row at `x` into row `row` of the words and scales."""
    g, n = tl.arange(0, G), tl.arange(0, N)
    column = g[:, None] * GROUP + n[None, :]
    live = (n < GROUP)[None, :] & (column < DIM)
    value = tl.load(x + column, mask=live, other=0.0).to(tl.float32)
    to = words + row * DIM + column
    if FORM == FP32:
        tl.store(to, value, mask=live)
    elif FORM == BF16:
        tl.store(to, _to_bf16(value), mask=live)
    else:
        codes, scale = _encode(value, FORM)
        if FORM == INT4:
            low, high = tl.split(tl.reshape(codes & 15, (G, N // 2, 2)))
            byte = g[:, None] * (GROUP // 2) + tl.arange(0, N // 2)[None, :]
            pair = (tl.arange(0, N // 2) < GROUP // 2)[None, :] & (byte < DIM // 2)
            tl.store(words + row * (DIM // 2) + byte, (low | (high << 4)).to(tl.uint8), mask=pair)
        else:
            tl.store(to, codes.to(words.dtype.element_ty), mask=live)
        tl.store(scales + row * GROUPS + g, scale, mask=g < GROUPS)


@triton.jit(do_not_specialize=["rows"])
def write_rows(
    keys,
    values,
    key_words,
    value_words,
    key_scales,
    value_scales,
    slots,
    key_row,  # strides
    key_head,
    value_row,
    value_head,
    rows,  # of the cache
    DIM: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    FORM: tl.constexpr,
    G: tl.constexpr,
    N: tl.constexpr,
):
    """keys[t] and values[t] into cache row slots[t]; grid (T, H). A row outside writes nothing."""
    t, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots + t)
    if (slot >= 0) & (slot < rows):
        row = slot * tl.num_programs(1) + head
        at = keys + t * key_row + head * key_head
        _write(at, key_words, key_scales, row, DIM, GROUP, GROUPS, FORM, G, N)
        at = values + t * value_row + head * value_head
        _write(at, value_words, value_scales, row, DIM, GROUP, GROUPS, FORM, G, N)


@triton.jit
def _read(
    words,
    scales,
    out,
    row,
    to,
    DIM: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    FORM: tl.constexpr,
    N: tl.constexpr,
):
    column = tl.arange(0, N)
    live = column < DIM
    if FORM == INT4:
        byte = tl.load(words + row * (DIM // 2) + column // 2, mask=live, other=0).to(tl.int32)
        # The sign of the code comes down with it.
        word = (byte << (28 - column % 2 * 4)) >> 28
    else:
        word = tl.load(words + row * DIM + column, mask=live, other=0)
    if FORM == BF16:
        value = (word.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    elif FORM == FP32:
        value = word
    else:
        value = decode_e4m3(word) if FORM == FP8 else word.to(tl.float32)
        if FORM == FP8:
            value = tl.where((word & 0x7F) == 0x7F, float("nan"), value)
        scale = tl.load(scales + row * GROUPS + column // GROUP, mask=live, other=0.0)
        value = value * scale.to(tl.float32)
    tl.store(out + to * DIM + column, value, mask=live)


@triton.jit
def read_rows(
    key_words,
    value_words,
    key_scales,
    value_scales,
    slots,
    keys,
    values,
    DIM: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    FORM: tl.constexpr,
    N: tl.constexpr,
):
    """Decoded rows slots[t] of the cache into keys[t] and values[t], float32; grid (T, H)."""
    t, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.load(slots + t) * tl.num_programs(1) + head
    to = t * tl.num_programs(1) + head
    _read(key_words, key_scales, keys, row, to, DIM, GROUP, GROUPS, FORM, N)
    _read(value_words, value_scales, values, row, to, DIM, GROUP, GROUPS, FORM, N)
