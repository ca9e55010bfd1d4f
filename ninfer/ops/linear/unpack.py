"""Device codecs: words of stored weights to the operands of a product, one function per format.

Fragment order (see `fragment_order`) is read as a tile [rows, 16] of 32-bit words: element
(row, y) is word m = y % 4 of lane 4 r + j with j = y // 4, and holds codes of row r and of row
r + 8. As operand of a product each half of the tile (rows r, or rows r + 8) is one plane
[rows, 64], whose columns stand in product order: place n = 16 m + 8 e + 2 j + p is column
32 c + 8 j + 4 m0 + 2 e + p with m = 2 c + m0, so that a lane's own words are its own operands. Of
8-bit codes half a block at a time is a plane [rows, 32], n = 16 m0 + 8 e + 2 j + p.

Each codec has two forms with equal values: assembly that makes two bf16 codes by one LOP3 and one
FMA, and plain integer arithmetic for other operand types and for Triton's interpreter.
"""

import triton
import triton.language as tl

# Bits by which the stored words are rotated left, so that codes meet the bf16 mantissa.
_TURN = {4: 3, 5: 2, 6: 1}
# bf16 pairs: the nibble's place, the number it is added to, and minus what is too much.
_MASK = {4: 0x00780078, 5: 0x007C007C, 6: 0x001E001E}
_FLOOR = {4: 0x41804180, 5: 0x42004200, 6: 0x42804280}
_EXCESS = {4: 0xC1C0C1C0, 5: 0xC240C240, 6: 0xC2C0C2C0}
_HIGH_MASK = 0x00600060
_ONES = 0x3F803F80
_MINUS_ONES = 0xBF80BF80


def _assembly(bits: int) -> str:
    """PTX that unpacks a word into four pairs of bf16, one for each register i."""
    lines = ["{", ".reg .b32 t, u, one, less;"]
    lines += [f"mov.b32 one, {_ONES:#010x};", f"mov.b32 less, {_EXCESS[bits]:#010x};"]
    for i in range(4):
        if bits == 5 and i == 3:
            # Four bits from the lane's last word, which is turned to them already, and one.
            lines.append(f"lop3.b32 t, $5, {_MASK[4]:#010x}, {_FLOOR[5]:#010x}, 0xEA;")
            lines += ["shl.b32 u, $4, 1;", "lop3.b32 t, u, 0x00040004, t, 0xEA;"]
        else:
            lines.append(f"shf.r.wrap.b32 t, $4, $4, {(5 if bits == 5 else 4) * i};")
            lines.append(f"lop3.b32 t, t, {_MASK[bits]:#010x}, {_FLOOR[bits]:#010x}, 0xEA;")
        if bits == 6:
            # The high bits of the word are turned to the front already.
            lines.append(f"shf.r.wrap.b32 u, $5, $5, {2 * i};")
            lines.append(f"lop3.b32 t, u, {_HIGH_MASK:#010x}, t, 0xEA;")
        lines.append(f"fma.rn.bf16x2 ${i}, t, one, less;")
    return "\n".join([*lines, "}"])


def _assembly8() -> str:
    """PTX that unpacks a word of 8-bit codes into the pairs of its two halves."""
    lines = ["{", ".reg .b32 s, lo, hi, less;", f"mov.b32 less, {_MINUS_ONES:#010x};"]
    for h in range(2):
        lines.append(f"shr.u32 s, $2, {8 * h};")
        lines.append("lop3.b32 lo, s, 0x007F007F, 0x43004300, 0xEA;")
        lines.append("lop3.b32 hi, s, 0x00800080, 0x43004300, 0xEA;")
        lines.append(f"fma.rn.bf16x2 ${h}, hi, less, lo;")
    return "\n".join([*lines, "}"])


_UNPACK4 = tl.constexpr(_assembly(4))
_UNPACK5 = tl.constexpr(_assembly(5))
_UNPACK6 = tl.constexpr(_assembly(6))
_UNPACK8 = tl.constexpr(_assembly8())


@triton.jit
def block_places(tile, g, groups, slice_units, BITS: tl.constexpr, SLICE: tl.constexpr):
    """Where the codes and the scales of block `g` of a tile begin.

    SLICE is the number of blocks of a slice, 0 when the whole row is one.
    """
    CODE: tl.constexpr = 32 * BITS  # int32 words
    SCALE: tl.constexpr = 16 if BITS == 8 else 8
    if SLICE == 0:
        return tile + g * CODE, tile + groups * CODE + g * SCALE
    else:
        base = tile + (g // SLICE).to(tl.int64) * slice_units * 4
        return base + (g % SLICE) * CODE, base + SLICE * CODE + (g % SLICE) * SCALE


@triton.jit
def _turned(word, count: tl.constexpr):
    """32-bit words rotated right by 1..31 bits."""
    bits = word.to(tl.uint32, bitcast=True)
    return (bits >> count) | (bits << (32 - count))


@triton.jit
def _turned_word(word, count: tl.constexpr):
    return _turned(word, count).to(tl.int32, bitcast=True)


@triton.jit
def nibble_code(block, r, j, m, i, p, BITS: tl.constexpr):
    """4-, 5- or 6-bit codes as int32: half p of register i = h + 2 e of word m of lane 4 r + j."""
    turned = _turned(tl.load(block + 16 * r + 4 * j + m), 7 - BITS)
    if BITS == 5:
        last = _turned(tl.load(block + 128 + 4 * r + j), 3)
        fourth = ((last >> (4 * m + 16 * p)) & 15) << 1
        fourth += (turned >> (31 - 16 * p)) & 1
        code = tl.where(i < 3, (turned >> (5 * i + 16 * p)) & 31, fourth)
    else:
        code = (turned >> (4 * i + 16 * p)) & 15
    if BITS == 6:
        high = _turned(tl.load(block + 128 + 8 * r + 2 * j + m // 2), 5)
        code += ((high >> (8 * (m % 2) + 2 * i + 16 * p)) & 3) << 4
    return code.to(tl.int32) - (1 << (BITS - 1))


@triton.jit
def byte_code(block, r, j, m0, e, h, p):
    """8-bit codes of half a block as int32: byte h + 2 p of word (m0, e) of lane 4 r + j."""
    word = tl.load(block + 16 * r + 4 * j + 2 * m0 + e).to(tl.uint32, bitcast=True)
    byte = ((word >> (8 * h + 16 * p)) & 255).to(tl.int32)
    return byte - 2 * (byte & 128)


@triton.jit
def product_columns(n):
    """Columns of a block, or of half a block of 8-bit codes, that stand at places `n`."""
    return 32 * (n // 32) + 8 * ((n // 2) % 4) + 4 * ((n // 16) % 2) + 2 * ((n // 8) % 2) + n % 2


@triton.jit
def turned_high(block, row, BITS: tl.constexpr):
    """The words of high bits [.., rows, 16] for words (j, m), their first field in front.

    Turned by constants and joined: counts by column would keep the compiler from decoding in the
    registers of the product.
    """
    if BITS == 5:
        last = tl.load(block + 128 + row * 4 + _line(block, 4))
        even = tl.join(last, _turned_word(last, 8))
        odd = tl.join(_turned_word(last, 4), _turned_word(last, 12))
        return _rows_of(tl.join(even, odd), block, 16)
    else:
        high = tl.load(block + 128 + row * 8 + _line(block, 8))
        return _rows_of(tl.join(high, _turned_word(high, 8)), block, 16)


@triton.jit
def unpack_nibbles(block, row, BITS: tl.constexpr, PLAIN: tl.constexpr, OPERAND: tl.constexpr):
    """4-, 5- or 6-bit codes of rows r and of rows r + 8: two planes [.., rows, 64] of OPERAND.

    `block` [.., rows, 1] points to each row's code block, `row` [.., rows, 1] is r.
    """
    if PLAIN:
        n = _line(block, 64)
        m, e, j, p = n // 16, (n // 8) % 2, (n // 2) % 4, n % 2
        low = nibble_code(block, row, j, m, 2 * e, p, BITS)
        high = nibble_code(block, row, j, m, 1 + 2 * e, p, BITS)
        return low.to(OPERAND), high.to(OPERAND)
    else:
        y = _line(block, 16)
        words = tl.load(block + row * 16 + y)
        if BITS == 4:
            pairs = tl.inline_asm_elementwise(
                _UNPACK4,
                "=r,=r,=r,=r,r",
                [words],
                dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
                is_pure=True,
                pack=1,
            )
        else:
            high = turned_high(block, row, BITS)
            pairs = tl.inline_asm_elementwise(
                _UNPACK5 if BITS == 5 else _UNPACK6,
                "=r,=r,=r,=r,r,r",
                [words, high],
                dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
                is_pure=True,
                pack=1,
            )
        return _operand(pairs[0], pairs[2]), _operand(pairs[1], pairs[3])


@triton.jit
def _operand(even, odd):
    """Pairs of bf16 [.., rows, 16] of words (j, m), for e = 0 and 1, as a plane [.., rows, 64]."""
    low = tl.join(_low(even), _low(odd))
    high = tl.join(_high(even), _high(odd))
    rows: tl.constexpr = even.numel // 16
    places = tl.join(low, high).reshape(rows, 4, 4, 2, 2).permute(0, 2, 3, 1, 4)
    return _rows_of(places, even, 64)


@triton.jit
def _line(like, COUNT: tl.constexpr):
    """0 .. COUNT - 1 along the last of the two or three dimensions of `like`."""
    n = tl.arange(0, COUNT)
    if len(like.shape) == 3:
        return n[None, None, :]
    else:
        return n[None, :]


@triton.jit
def _rows_of(values, like, COUNT: tl.constexpr):
    """Values with the leading dimensions of `like` and COUNT in the last."""
    if len(like.shape) == 3:
        return values.reshape(like.shape[0], like.shape[1], COUNT)
    else:
        return values.reshape(like.shape[0], COUNT)


@triton.jit
def _low(pairs):
    return pairs.to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def _high(pairs):
    return (pairs >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def unpack_bytes(block, row, PLAIN: tl.constexpr, OPERAND: tl.constexpr):
    """8-bit codes of half a block, as unpack_nibbles: two planes [.., rows, 32] of OPERAND."""
    if PLAIN:
        n = _line(block, 32)
        m0, e, j, p = n // 16, (n // 8) % 2, (n // 2) % 4, n % 2
        low = byte_code(block, row, j, m0, e, 0, p)
        return low.to(OPERAND), byte_code(block, row, j, m0, e, 1, p).to(OPERAND)
    else:
        pairs = tl.inline_asm_elementwise(
            _UNPACK8,
            "=r,=r,r",
            [tl.load(block + row * 16 + _line(block, 16))],
            dtype=(tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
        return _byte_operand(pairs[0]), _byte_operand(pairs[1])


@triton.jit
def _byte_operand(pairs):
    """Pairs of bf16 [.., rows, 16] of words (j, m0, e) as a plane of bf16 [.., rows, 32]."""
    rows: tl.constexpr = pairs.numel // 16
    both = tl.join(_low(pairs), _high(pairs)).reshape(rows, 4, 2, 2, 2)
    return _rows_of(both.permute(0, 2, 3, 1, 4), pairs, 32)


@triton.jit
def unpack_scales(words):
    """Binary16 pairs of rows r and r + 8 as two float32 tensors."""
    low = words.to(tl.int16).to(tl.float16, bitcast=True)
    high = (words >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    return low.to(tl.float32), high.to(tl.float32)


@triton.jit
def decode_e4m3(byte):
    """E4M3FN bytes as float32, exactly; subnormal codes too. NaN codes do not occur in weights."""
    word = byte.to(tl.int32)
    magnitude = ((word & 0x7F) << 20).to(tl.float32, bitcast=True) * (2.0**120)
    return tl.where(word >= 128, -magnitude, magnitude)


@triton.jit
def decode_e2m1(code):
    """E2M1 codes 0..15 as float32, exactly."""
    exponent, fraction = (code >> 1) & 3, code & 1
    halves = tl.where(exponent == 0, fraction, (2 + fraction) << tl.maximum(exponent - 1, 0))
    magnitude = halves.to(tl.float32) * 0.5
    return tl.where(code >= 8, -magnitude, magnitude)
