"""Device functions of attention: one tile of keys against some rows, and the sum of two parts.

Rows are pairs of a token and one of the query heads that share a KV head, so a tile of keys is read
once for all of them. Keys, then columns of the head, lie on the rows of the matrix instruction, and
queries on its columns. Scores are kept times log2(e). A row's sums go through the products of the
matrix instruction only, its largest score through maxima, so neither depends on how many rows there
are or on how threads are laid over a tile. No kernel here lets the compiler fuse a product with a
sum (`enable_fp_fusion=False`): the same line must round alike wherever it is compiled into.
"""

import triton
import triton.language as tl

from ninfer.ops.linear.unpack import decode_e4m3

# How keys and values are stored.
DIRECT = tl.constexpr(0)
INT8 = tl.constexpr(1)
FP8 = tl.constexpr(2)
FP8_NATIVE = tl.constexpr(3)  # cards that convert E4M3 themselves
INT4 = tl.constexpr(4)  # two codes a byte, keys as words of 16 bits


def _fetch(take: str, byte: int) -> str:
    """PTX that makes $byte a pair of bf16 codes of the signed bytes that `take` puts into `t`."""
    # 128 plus the low seven bits, less 128 plus the sign bit.
    return (
        f"{take}\nlop3.b32 low, t, 0x007F007F, 0x43004300, 0xEA;\n"
        f"lop3.b32 high, t, 0x00800080, 0x43004300, 0xEA;\n"
        f"fma.rn.bf16x2 ${byte}, high, less, low;\n"
    )


_HEAD = "{\n.reg .b32 t, low, high, less;\nmov.b32 less, 0xBF80BF80;\n"
# Two 16-bit numbers that are one code each.
_PAIR = tl.constexpr(_HEAD + _fetch("mov.b32 t, $1;", 0) + "}")
# Two words of four codes each, $(byte) for that byte of both.
_WORDS = tl.constexpr(
    _HEAD
    + "".join(_fetch(f"prmt.b32 t, $4, $5, {0x4400 + 0x1111 * i:#06x};", i) for i in range(4))
    + "}"
)


@triton.jit
def decode_words(words, FORM: tl.constexpr, OPERAND: tl.constexpr):
    """Stored words as operands of a product, without their scales; exact."""
    if FORM == FP8:
        words = decode_e4m3(words)
    elif FORM == FP8_NATIVE:
        words = words.to(tl.float8e4nv, bitcast=True)
    elif (FORM == INT8) & (OPERAND == tl.bfloat16):
        words = tl.inline_asm_elementwise(
            _PAIR, "=r,r", [words.to(tl.int16)], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    return words.to(OPERAND)


@triton.jit
def _decode_bytes(words, FORM: tl.constexpr, OPERAND: tl.constexpr):
    """The four codes in each word as operands: a tuple, lowest bits first."""
    if (FORM == INT8) & (OPERAND == tl.bfloat16):
        found = tl.inline_asm_elementwise(
            _WORDS,
            "=r,=r,=r,=r,r,r",
            [words],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=2,
        )
    else:
        found = ()
        for byte in tl.static_range(4):
            if FORM == INT4:
                # The sign of the code comes down with it.
                code = ((words.to(tl.int32) << (28 - 4 * byte)) >> 28).to(tl.int8)
            else:
                code = (words >> (8 * byte)).to(tl.int8)
            if FORM == FP8:
                code = code.to(tl.int32) & 0xFF
            found = found + (decode_words(code, FORM, OPERAND),)
    return found


@triton.jit
def _load(at, live, column, DIM: tl.constexpr, RAGGED: tl.constexpr, MASKED: tl.constexpr):
    """Words at `at`, zero for keys that are not live and columns behind the head."""
    if RAGGED:
        mask = (live & (column < DIM)) if MASKED else (column < DIM)
        words = tl.load(at, mask=mask, other=0)
    elif MASKED:
        words = tl.load(at, mask=live, other=0)
    else:
        words = tl.load(at)
    return words


@triton.jit
def _scale_word(scales, at, live, PACKED: tl.constexpr, MASKED: tl.constexpr):
    """All scales of each key in one word, [BN]; nothing where they are not loaded together."""
    word = live
    if PACKED:
        word = tl.load(scales + at, mask=live, other=0) if MASKED else tl.load(scales + at)
    return word


@triton.jit
def _scale(word, scales, at, live, group: tl.constexpr, PACKED: tl.constexpr, MASKED: tl.constexpr):
    """Float32 multipliers [BN] of one group of each key, NaN for one that is not finite."""
    if PACKED:
        found = (word >> (16 * group)).to(tl.int16).to(tl.float16, bitcast=True)
    else:
        at += group
        found = tl.load(scales + at, mask=live, other=0.0) if MASKED else tl.load(scales + at)
    found = found.to(tl.float32)
    # The codec gives NaN for every code of a group that held infinity.
    return (found - found) + found


@triton.jit
def load_queries(
    q,  # [R] pointers to head rows
    live,  # [R]
    DIM: tl.constexpr,
    W: tl.constexpr,
    CHUNKS: tl.constexpr,
    PARTS: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """Query rows as a tuple, zero where not live: of each chunk [W, R] its PARTS one by one.

    There are four parts [W / 4, R], of columns 4 i + part, where keys are read as words of four
    codes; else the chunk is the one part.
    """
    found = ()
    for part in tl.static_range(CHUNKS * PARTS):
        column = part // PARTS * W + part % PARTS + PARTS * tl.arange(0, W // PARTS)[:, None]
        words = tl.load(q[None, :] + column, mask=live[None, :] & (column < DIM), other=0.0)
        found = found + (words.to(OPERAND),)
    return found


@triton.jit
def no_sums(W: tl.constexpr, R: tl.constexpr, CHUNKS: tl.constexpr):
    """A tuple of chunks [W, R] of zeros."""
    found = ()
    for _ in tl.static_range(CHUNKS):
        found = found + (tl.zeros((W, R), tl.float32),)
    return found


@triton.jit
def attend_tile(
    q,  # tuple of [W / PARTS, R]
    top,  # [R] largest score so far
    weight,  # [64, R] sum of weights, the same in each line
    sums,  # tuple of [W, R] weighted values
    keys,
    values,
    key_scales,
    value_scales,
    key_at,  # [BN] where a key's head row is, in words of four where keys are codes
    value_at,
    scale_at,  # [BN] where its scales are
    live,  # [BN] keys to read; ignored unless MASKED
    visible,  # [BN, R] keys that a row sees; ignored unless MASKED
    scale,
    DIM: tl.constexpr,
    W: tl.constexpr,
    CHUNKS: tl.constexpr,
    SCALED: tl.constexpr,  # words of a scale group, 0 without
    PACKED: tl.constexpr,
    PARTS: tl.constexpr,
    FORM: tl.constexpr,
    OPERAND: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Top, weight and sums with one more tile of keys."""
    R: tl.constexpr = top.shape[0]
    BN: tl.constexpr = key_at.shape[0]
    RAGGED: tl.constexpr = CHUNKS * W != DIM
    scores = tl.zeros((BN, R), tl.float32)
    word = _scale_word(key_scales, scale_at, live, PACKED, MASKED)
    for c in tl.static_range(CHUNKS):
        if FORM == DIRECT:
            for part in tl.static_range(PARTS):
                column = c * W + part + PARTS * tl.arange(0, W // PARTS)[None, :]
                at = keys + key_at[:, None] + column
                k = _load(at, live[:, None], column, DIM, RAGGED, MASKED).to(OPERAND)
                scores = tl.dot(k, q[c * PARTS + part], scores, input_precision="ieee")
        else:
            # Four codes come by one load of shared memory.
            line = c * (W // 4) + tl.arange(0, W // 4)[None, :]
            at = keys + key_at[:, None] + line
            codes = _decode_bytes(
                _load(at, live[:, None], line, DIM // 4, RAGGED, MASKED), FORM, OPERAND
            )
            part = tl.zeros((BN, R), tl.float32)
            for byte in tl.static_range(4):
                part = tl.dot(codes[byte], q[4 * c + byte], part, input_precision="ieee")
            factor = _scale(word, key_scales, scale_at, live, c * W // SCALED, PACKED, MASKED)
            scores = tl.fma(part, tl.broadcast_to((factor * scale)[:, None], (BN, R)), scores)
    if FORM == DIRECT:
        scores = scores * scale
    if MASKED:
        scores = tl.where(visible, scores, float("-inf"))
    highest = tl.maximum(top, tl.max(scores, 0))
    # A row that has seen nothing yet must not subtract infinity from itself.
    level = tl.where(highest == float("-inf"), 0.0, highest)
    fade = tl.exp2(top - level)[None, :]
    shares = tl.exp2(scores - level[None, :])
    operand = shares.to(OPERAND)
    ones = tl.full((64, BN), 1.0, OPERAND)
    weight = tl.dot(ones, operand, weight * fade, input_precision="ieee")
    word = _scale_word(value_scales, scale_at, live, PACKED, MASKED)
    found = ()
    for c in tl.static_range(CHUNKS):
        column = c * W + tl.arange(0, W)[:, None]
        part = sums[c] * fade
        at = values + value_at[None, :] + column
        if FORM != DIRECT:
            factor = _scale(word, value_scales, scale_at, live, c * W // SCALED, PACKED, MASKED)
            scaled = shares * factor[:, None]
            if MASKED:
                # What a row does not see weighs zero, even times a scale that is not finite.
                scaled = tl.where(visible, scaled, 0.0)
                # Nor may its codes be NaN, as those of FP8 then are.
                live = live & (factor - factor == 0.0)
            operand = scaled.to(OPERAND)
            if FORM == INT4:
                at = values + ((value_at[None, :] + column) >> 1)
            v = _load(at, live[None, :], column, DIM, RAGGED, MASKED)
            if FORM == INT4:
                v = ((v.to(tl.int32) << (28 - column % 2 * 4)) >> 28).to(tl.int8)
            v = decode_words(v, FORM, OPERAND)
            part = tl.dot(v, operand, part, input_precision="ieee")
        elif MASKED:
            wide = _load(at, live[None, :], column, DIM, RAGGED, MASKED).to(tl.float32)
            finite = wide - wide == 0.0
            bad = tl.max(tl.where(finite, 0, 1), 0)
            spoiled = tl.max(tl.where(visible, bad[:, None], 0), 0)
            v = tl.where(finite, wide, 0.0).to(OPERAND)
            part = tl.dot(v, operand, part, input_precision="ieee")
            part = tl.where(spoiled[None, :] > 0, float("nan"), part)
        else:
            v = _load(at, live[None, :], column, DIM, RAGGED, MASKED).to(OPERAND)
            part = tl.dot(v, operand, part, input_precision="ieee")
        found = found + (part,)
    return highest, weight, found


@triton.jit
def fold(top, weight, sums, new_top, new_weight, new_sums, CHUNKS: tl.constexpr):
    """Two parts of the keys of some rows as one; tops and weights [R], sums tuples of [W, R]."""
    highest = tl.maximum(top, new_top)
    level = tl.where(highest == float("-inf"), 0.0, highest)
    old, new = tl.exp2(top - level), tl.exp2(new_top - level)
    found = ()
    for c in tl.static_range(CHUNKS):
        found = found + (sums[c] * old[None, :] + new_sums[c] * new[None, :],)
    return highest, weight * old + new_weight * new, found
