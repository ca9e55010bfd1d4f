"""Device codecs: words of stored weights to the operands of a product, one function per format.

Fragment order (see `fragment_order`) is read as a tile [rows, 16] of 32-bit words: element
(row, y) is word m = y % 4 of lane 4 r + j with j = y // 4, and holds codes of row r and of row
r + 8. As operands of products those are planes [rows, 16]: `h` is the half of the tile (row r or
r + 8), `q` one of the products of a block. With c, m0 and p the bits of y (y = 4 j + 2 c + m0, and
p in the place of m0), plane q = 2 m0 + e holds column 32 c + 8 j + 2 q + p of 4- to 6-bit codes,
and plane q = e column 4 (y // 2) + 2 q + p of each half block of 8-bit codes.

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
def _turned_by(word, count):
    """32-bit words rotated right by 0..31 bits."""
    return tl.inline_asm_elementwise(
        "shf.r.wrap.b32 $0, $1, $1, $2;",
        "=r,r,r",
        [word, count],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def nibble_plane(block, row, y, m0: tl.constexpr, i, BITS: tl.constexpr):
    """Codes [rows, 16] of the plane of word m0 and register i = h + 2 e, as int32."""
    p = y & 1
    word = tl.load(block + row * 16 + (y - p + m0))
    turn: tl.constexpr = 7 - BITS
    turned = _turned(word, turn)
    if BITS == 5:
        last = _turned(tl.load(block + 128 + row * 4 + y // 4), 3)
        fourth = ((last >> (4 * (y & 2) + 4 * m0 + 16 * p)) & 15) << 1
        fourth += (turned >> (31 - 16 * p)) & 1
        code = tl.where(i < 3, (turned >> (5 * i + 16 * p)) & 31, fourth)
    else:
        code = (turned >> (4 * i + 16 * p)) & 15
    if BITS == 6:
        high = _turned(tl.load(block + 128 + row * 8 + y // 2), 5)
        code += ((high >> (8 * m0 + 2 * i + 16 * p)) & 3) << 4
    return code.to(tl.int32) - (1 << (BITS - 1))


@triton.jit
def unpack_nibbles(block, row, y, BITS: tl.constexpr, PLAIN: tl.constexpr, OPERAND: tl.constexpr):
    """Planes of 4-, 5- or 6-bit codes: eight [rows, 16] of OPERAND, index 2 q + h.

    `block` [rows, 1] points to each row's code block, `row` [rows, 1] is r, `y` is [1, 16].
    """
    if PLAIN:
        return (
            nibble_plane(block, row, y, 0, 0, BITS).to(OPERAND),
            nibble_plane(block, row, y, 0, 1, BITS).to(OPERAND),
            nibble_plane(block, row, y, 0, 2, BITS).to(OPERAND),
            nibble_plane(block, row, y, 0, 3, BITS).to(OPERAND),
            nibble_plane(block, row, y, 1, 0, BITS).to(OPERAND),
            nibble_plane(block, row, y, 1, 1, BITS).to(OPERAND),
            nibble_plane(block, row, y, 1, 2, BITS).to(OPERAND),
            nibble_plane(block, row, y, 1, 3, BITS).to(OPERAND),
        )
    else:
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
            if BITS == 5:
                high = tl.load(block + 128 + row * 4 + y // 4)
                high = _turned_by(high, 4 * (y & 3))
            else:
                high = tl.load(block + 128 + row * 8 + y // 2)
                high = _turned_by(high, 8 * (y & 1))
            pairs = tl.inline_asm_elementwise(
                _UNPACK5 if BITS == 5 else _UNPACK6,
                "=r,=r,=r,=r,r,r",
                [words, high],
                dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
                is_pure=True,
                pack=1,
            )
        a0, b0 = _planes(pairs[0])
        a1, b1 = _planes(pairs[1])
        a2, b2 = _planes(pairs[2])
        a3, b3 = _planes(pairs[3])
        return a0, a1, a2, a3, b0, b1, b2, b3


@triton.jit
def _planes(pairs):
    """Pairs of bf16 [.., rows, 16] of words m0 = y & 1 as two planes of bf16 [.., rows, 16]."""
    if len(pairs.shape) == 3:
        even, odd = tl.split(pairs.reshape(pairs.shape[0], pairs.shape[1], 8, 2))
    else:
        even, odd = tl.split(pairs.reshape(pairs.shape[0], 8, 2))
    return _spread(even), _spread(odd)


@triton.jit
def _spread(pairs):
    """Pairs of bf16 [.., rows, 8], the first in the low half, as bf16 [.., rows, 16]."""
    low = pairs.to(tl.int16).to(tl.bfloat16, bitcast=True)
    high = (pairs >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    if len(pairs.shape) == 3:
        return tl.join(low, high).reshape(pairs.shape[0], pairs.shape[1], 16)
    else:
        return tl.join(low, high).reshape(pairs.shape[0], 16)


@triton.jit
def byte_plane(block, row, y, e: tl.constexpr, h):
    """8-bit codes [rows, 16] of plane e and half h, as int32."""
    p = y & 1
    word = tl.load(block + row * 16 + (y - p + e)).to(tl.uint32, bitcast=True)
    byte = ((word >> (8 * h + 16 * p)) & 255).to(tl.int32)
    return byte - 2 * (byte & 128)


@triton.jit
def unpack_bytes(block, row, y, PLAIN: tl.constexpr, OPERAND: tl.constexpr):
    """Planes of 8-bit codes of half a block: four [rows, 16] of OPERAND, index 2 q + h."""
    if PLAIN:
        return (
            byte_plane(block, row, y, 0, 0).to(OPERAND),
            byte_plane(block, row, y, 0, 1).to(OPERAND),
            byte_plane(block, row, y, 1, 0).to(OPERAND),
            byte_plane(block, row, y, 1, 1).to(OPERAND),
        )
    else:
        pairs = tl.inline_asm_elementwise(
            _UNPACK8,
            "=r,=r,r",
            [tl.load(block + row * 16 + y)],
            dtype=(tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
        a0, b0 = _planes(pairs[0])
        a1, b1 = _planes(pairs[1])
        return a0, a1, b0, b1


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
