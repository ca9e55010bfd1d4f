"""Triton kernel of the rotary embedding: a program turns some heads of one token."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["axis_stride", "position_stride"])
def rotate_heads(
    x,
    positions,
    out,
    H,
    token_stride,
    head_stride,
    axis_stride,
    position_stride,
    LOG2_THETA: tl.constexpr,
    HALF: tl.constexpr,
    D: tl.constexpr,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,  # a power of two that holds HALF
    REST: tl.constexpr,  # one that holds what passes through
    FACTOR: tl.constexpr,  # of YaRN; 1 is none, and what follows is not read
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    SCALE: tl.constexpr,
):
    """Heads of a token with their first 2 HALF numbers turned; grid (tokens, blocks of heads)."""
    t = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    pair = tl.arange(0, PAIRS)
    # Turns, of which whole ones are left out while the number still has all its bits.
    exponent = pair.to(tl.float64) * tl.full((), -LOG2_THETA / HALF, tl.float64)
    frequency = tl.exp2(exponent)
    if FACTOR != 1.0:
        place = (pair.to(tl.float64) - LOW) / tl.full((), HIGH - LOW, tl.float64)
        slowed = tl.minimum(tl.maximum(place, 0.0), 1.0)
        frequency = frequency * (1.0 - slowed) + frequency / FACTOR * slowed
    axis = positions + (pair % 3) * axis_stride + t * position_stride
    position = tl.load(axis, mask=pair < HALF, other=0).to(tl.float64)
    turns = position * frequency * tl.full((), 0.15915494309189535, tl.float64)
    angle = ((turns - tl.floor(turns + 0.5)) * tl.full((), 6.283185307179586, tl.float64)).to(
        tl.float32
    )
    cosine, sine = tl.cos(angle)[None, :], tl.sin(angle)[None, :]
    if FACTOR != 1.0:
        cosine, sine = cosine * SCALE, sine * SCALE
    live = (head < H) & (pair < HALF)[None, :]
    source = x + t * token_stride + head * head_stride
    to = out + (t * H + head) * D
    at = pair[None, :]
    first = tl.load(source + at, mask=live, other=0.0).to(tl.float32)
    second = tl.load(source + HALF + at, mask=live, other=0.0).to(tl.float32)
    tl.store(to + at, first * cosine - second * sine, mask=live)
    tl.store(to + HALF + at, second * cosine + first * sine, mask=live)
    if D > 2 * HALF:
        at = 2 * HALF + tl.arange(0, REST)[None, :]
        live = (head < H) & (at < D)
        tl.store(to + at, tl.load(source + at, mask=live, other=0.0).to(tl.float32), mask=live)
