"""Device functions of attention: one tile of keys against some rows, and the sum of two parts.

Rows are pairs of a token and one of the query heads that share a KV head, so a tile of keys is read
once for all of them. Scores are kept times log2(e). A row's sums go through the products of the
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


@triton.jit
def decode_words(words, FORM: tl.constexpr, OPERAND: tl.constexpr):
    """Stored words as operands of a product, without their scales; exact."""
    if FORM == FP8:
        words = decode_e4m3(words)
    elif FORM == FP8_NATIVE:
        words = words.to(tl.float8e4nv, bitcast=True)
    return words.to(OPERAND)


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
def _scale(
    word, scales, at, live, group: tl.constexpr, PACKED: tl.constexpr, MASKED: tl.constexpr
):
    """Float32 multipliers [BN] of one group of each key."""
    if PACKED:
        found = (word >> (16 * group)).to(tl.int16).to(tl.float16, bitcast=True)
    else:
        at += group
        found = tl.load(scales + at, mask=live, other=0.0) if MASKED else tl.load(scales + at)
    return found.to(tl.float32)


@triton.jit
def load_queries(
    q,  # [M] pointers to head rows
    live,  # [M]
    DIM: tl.constexpr,
    W: tl.constexpr,
    CHUNKS: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """Query rows as a tuple of chunks [M, W], zero where not live."""
    found = ()
    for c in tl.static_range(CHUNKS):
        column = c * W + tl.arange(0, W)[None, :]
        words = tl.load(q[:, None] + column, mask=live[:, None] & (column < DIM), other=0.0)
        found = found + (words.to(OPERAND),)
    return found


@triton.jit
def no_sums(M: tl.constexpr, W: tl.constexpr, CHUNKS: tl.constexpr):
    """A tuple of chunks [M, W] of zeros."""
    found = ()
    for _ in tl.static_range(CHUNKS):
        found = found + (tl.zeros((M, W), tl.float32),)
    return found


@triton.jit
def attend_tile(
    q,  # tuple of [M, W]
    top,  # [M] largest score so far
    weight,  # [M, 16] sum of weights, the same in each column
    sums,  # tuple of [M, W] weighted values
    keys,
    values,
    key_scales,
    value_scales,
    key_at,  # [BN] where a key's head row is
    value_at,
    scale_at,  # [BN] where its scales are
    live,  # [BN] keys to read; ignored unless MASKED
    visible,  # [M, BN] keys that a row sees; ignored unless MASKED
    scale,
    DIM: tl.constexpr,
    W: tl.constexpr,
    CHUNKS: tl.constexpr,
    SCALED: tl.constexpr,  # words of a scale group, 0 without
    PACKED: tl.constexpr,
    FORM: tl.constexpr,
    OPERAND: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Top, weight and sums with one more tile of keys."""
    M: tl.constexpr = top.shape[0]
    BN: tl.constexpr = key_at.shape[0]
    RAGGED: tl.constexpr = CHUNKS * W != DIM
    scores = tl.zeros((M, BN), tl.float32)
    word = _scale_word(key_scales, scale_at, live, PACKED, MASKED)
    for c in tl.static_range(CHUNKS):
        column = c * W + tl.arange(0, W)[:, None]
        k = _load(keys + key_at[None, :] + column, live[None, :], column, DIM, RAGGED, MASKED)
        k = decode_words(k, FORM, OPERAND)
        if SCALED:
            part = tl.dot(q[c], k, input_precision="ieee")
            factor = _scale(word, key_scales, scale_at, live, c * W // SCALED, PACKED, MASKED)
            scores += part * factor[None, :]
        else:
            scores = tl.dot(q[c], k, scores, input_precision="ieee")
    scores = scores * scale
    if MASKED:
        scores = tl.where(visible, scores, float("-inf"))
    highest = tl.maximum(top, tl.max(scores, 1))
    # A row that has seen nothing yet must not subtract infinity from itself.
    level = tl.where(highest == float("-inf"), 0.0, highest)
    fade = tl.exp2(top - level)[:, None]
    shares = tl.exp2(scores - level[:, None])
    operand = shares.to(OPERAND)
    ones = tl.full((BN, 16), 1.0, OPERAND)
    weight = tl.dot(operand, ones, weight * fade, input_precision="ieee")
    word = _scale_word(value_scales, scale_at, live, PACKED, MASKED)
    found = ()
    for c in tl.static_range(CHUNKS):
        column = c * W + tl.arange(0, W)[None, :]
        v = _load(values + value_at[:, None] + column, live[:, None], column, DIM, RAGGED, MASKED)
        part = sums[c] * fade
        if SCALED:
            factor = _scale(word, value_scales, scale_at, live, c * W // SCALED, PACKED, MASKED)
            scaled = shares * factor[None, :]
            if MASKED:
                # What a row does not see weighs zero, even times a scale that is not finite.
                scaled = tl.where(visible, scaled, 0.0)
            operand = scaled.to(OPERAND)
            v = decode_words(v, FORM, OPERAND)
            part = tl.dot(operand, v, part, input_precision="ieee")
        elif MASKED:
            wide = v.to(tl.float32)
            finite = wide - wide == 0.0
            bad = tl.max(tl.where(finite, 0, 1), 1)
            spoiled = tl.max(tl.where(visible, bad[None, :], 0), 1)
            v = tl.where(finite, wide, 0.0).to(OPERAND)
            part = tl.dot(operand, v, part, input_precision="ieee")
            part = tl.where(spoiled[:, None] > 0, float("nan"), part)
        else:
            part = tl.dot(operand, v.to(OPERAND), part, input_precision="ieee")
        found = found + (part,)
    return highest, weight, found


@triton.jit
def fold(top, weight, sums, new_top, new_weight, new_sums, CHUNKS: tl.constexpr):
    """Two parts of the keys of some rows as one; tops and weights [M], sums tuples of [M, W]."""
    highest = tl.maximum(top, new_top)
    level = tl.where(highest == float("-inf"), 0.0, highest)
    old, new = tl.exp2(top - level), tl.exp2(new_top - level)
    found = ()
    for c in tl.static_range(CHUNKS):
        found = found + (sums[c] * old[:, None] + new_sums[c] * new[:, None],)
    return highest, weight * old + new_weight * new, found
