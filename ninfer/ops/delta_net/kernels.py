"""Triton kernels of the whole Gated DeltaNet: row by row in one launch, and the norm of chunks.

A program of `delta_net_rows` owns one V head of one sequence from its inputs to its normed output.
Programs of one key head share the channels of query and key: all of them read the state of these,
and the last one to have read it writes it, which a counter tells it.
"""

import triton
import triton.language as tl

from ninfer.ops.conv.kernels import past_row
from ninfer.ops.gdn.chunk_kernels import first_row
from ninfer.ops.gdn.kernels import (
    BEFORE,
    BEHIND,
    CHUNK,
    advance,
    gates,
    key_places,
    load_matrix,
    over_keys,
    rows_of_part,
    store_matrix,
)
from ninfer.ops.kernel_math import only_if, rounded, silu

# Of the convolution; narrower ones have weights of 0 in front.
TAPS = tl.constexpr(4)


@triton.jit
def _float(at, mask):
    return tl.load(at, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _taps(
    convolution,
    inputs,
    window,
    x,
    at,
    channel,
    x_channel,
    live,
    stride,
    C: tl.constexpr,
    W: tl.constexpr,
):
    """Weights of four taps, and the three inputs before a row, oldest first; 0 where no tap is.

    `at` are the offsets of the slot in inputs and window, the row's place behind the first kept
    row, the number of kept rows, and the first new row.
    """
    slot_inputs, slot_window, place, kept, start = at
    place -= TAPS - W
    where = (slot_inputs, slot_window, start * stride, C, stride)
    taps = convolution + channel - (TAPS - W) * C
    none = live & (channel < 0)
    first, second = live if W > 3 else none, live if W > 2 else none
    PAST: tl.constexpr = W - 1
    weights = (
        _float(taps, first),
        _float(taps + C, second),
        _float(taps + 2 * C, live),
        _float(taps + 3 * C, live),
    )
    return weights, (
        past_row(inputs, window, x, where, place, kept, channel, x_channel, first, PAST),
        past_row(inputs, window, x, where, place + 1, kept, channel, x_channel, second, PAST),
        past_row(inputs, window, x, where, place + 2, kept, channel, x_channel, live, PAST),
    )


@triton.jit
def _convolved(taps, x, w, TYPE: tl.constexpr, PLAIN: tl.constexpr):
    total = taps[0] * w[0] + taps[1] * w[1] + taps[2] * w[2] + x * w[3]
    return rounded(silu(total), TYPE, PLAIN)


@triton.jit
def _unit(x, eps, TYPE: tl.constexpr, PLAIN: tl.constexpr):
    return rounded(x * tl.rsqrt(over_keys(x * x) + eps), TYPE, PLAIN)


@triton.jit
def _commit(inputs, slot, taps, channel, live, C, W: tl.constexpr):
    """Make three rows, oldest first, the committed inputs of a slot."""
    at = inputs + (slot * (W - 1) - (TAPS - W)) * C + channel
    if W > 3:
        tl.store(at, taps[0], mask=live)
    if W > 2:
        tl.store(at + C, taps[1], mask=live)
    tl.store(at + 2 * C, taps[2], mask=live)


@triton.jit
def _last_to_read(arrivals, place, GROUP: tl.constexpr):
    """Whether all other programs of the key head have been here; what they read may change then."""
    # Behind the barrier every thread's reads are done.
    tl.debug_barrier()
    last = tl.atomic_add(arrivals + place, 1) == GROUP - 1
    if last:
        tl.store(arrivals + place, 0)
    return last


@triton.jit
def _normed(o, gate, norm, eps, DV: tl.constexpr):
    """Gated RMS norm of o [V], 0 behind the last of DV values."""
    size = tl.sum(o * o, axis=0) / DV
    return o * tl.rsqrt(size + eps) * norm * silu(gate)


@triton.jit(do_not_specialize=["rows", "window", "part"])
def delta_net_rows(
    query,
    key,
    value,
    gate,
    a,
    b,
    out,
    convolution,
    a_log,
    dt_bias,
    norm,
    inputs,
    conv_window,
    matrix,
    keys,
    values,
    decays,
    betas,
    arrivals,
    pending,
    offsets,
    lengths,
    slots,
    held,
    q_row,
    k_row,
    v_row,
    gate_row,
    a_row,
    b_row,
    rows,
    window,
    part,
    scale,
    eps,
    l2_eps,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    L: tl.constexpr,
    V: tl.constexpr,
    W: tl.constexpr,
    STATE: tl.constexpr,
    TYPE: tl.constexpr,
    PLAIN: tl.constexpr,
):
    """Pending rows, then the rows of one part; grid (V heads, sequences)."""
    KEYS: tl.constexpr = HEADS // GROUP
    C: tl.constexpr = 2 * KEYS * DK + HEADS * DV
    h, sequence = tl.program_id(0), tl.program_id(1)
    start, stop = tl.load(offsets + sequence), tl.load(offsets + sequence + 1)
    if start == stop:
        return
    slot = tl.load(slots + sequence)
    kept = tl.load(pending + slot)
    stays = tl.load(held + sequence) != 0 if held is not None else False
    length = tl.load(lengths + sequence)
    begin, end, owed, has_chunks = rows_of_part(start, stop, length, kept, part)
    if (part == BEHIND) & (has_chunks == 0):
        return
    # Of a sequence with whole chunks the launch behind them commits.
    ends = (part == BEHIND) | (has_chunks == 0)
    place = matrix + (slot * HEADS + h) * (DV * DK)
    s = load_matrix(place, L, V, DK, DV)

    head = h // GROUP
    d, in_key = key_places(L, DK)
    lane = tl.arange(0, V)
    in_value = lane < DV
    qd, vd = head * DK + d, h * DV + lane
    kc, vc = KEYS * DK + qd, 2 * KEYS * DK + vd
    at = (slot * ((W - 1) * C), slot * rows * C, begin - start + kept, kept, start)
    wq, q_taps = _taps(convolution, inputs, conv_window, query, at, qd, qd, in_key, q_row, C, W)
    wk, k_taps = _taps(convolution, inputs, conv_window, key, at, kc, qd, in_key, k_row, C, W)
    wv, v_taps = _taps(convolution, inputs, conv_window, value, at, vc, vd, in_value, v_row, C, W)
    more = begin < end
    xq = _float(query + begin * q_row + qd, only_if(in_key, more))
    xk = _float(key + begin * k_row + qd, only_if(in_key, more))
    xv = _float(value + begin * v_row + vd, only_if(in_value, more))
    weight = _float(norm + lane, in_value)
    log_a, bias = tl.load(a_log + h), tl.load(dt_bias + h)

    # Programs that share a key head differ only in who writes its state.
    writes = h % GROUP == 0
    for i in range(owed + end - begin):
        t = begin + i - owed
        if i < owed:
            row = slot * window + i
            k = _float(keys + (row * KEYS + head) * DK + d, in_key)
            v = _float(values + row * (HEADS * DV) + vd, in_value)
            q, z = tl.zeros_like(k), tl.zeros_like(v)
            g, beta = tl.load(decays + row * HEADS + h), tl.load(betas + row * HEADS + h)
        else:
            g, beta = gates(tl.load(a + t * a_row + h), tl.load(b + t * b_row + h), log_a, bias)
            z = _float(gate + t * gate_row + vd, in_value)
            q = _unit(_convolved(q_taps, xq, wq, TYPE, PLAIN), l2_eps, TYPE, PLAIN)
            k = _unit(_convolved(k_taps, xk, wk, TYPE, PLAIN), l2_eps, TYPE, PLAIN)
            v = _convolved(v_taps, xv, wv, TYPE, PLAIN)
            if GROUP > 1 and (i == owed) & (part == BEFORE):
                writes = _last_to_read(arrivals, slot * KEYS + head, GROUP)
            if stays:
                own = only_if(in_key, writes)
                if i == owed:
                    tl.debug_barrier()
                    _commit(inputs, slot, q_taps, qd, own, C, W)
                    _commit(inputs, slot, k_taps, kc, own, C, W)
                    _commit(inputs, slot, v_taps, vc, in_value, C, W)
                r = t - start
                near = conv_window + (slot * rows + r) * C
                tl.store(near + qd, xq, mask=only_if(own, r < rows))
                tl.store(near + kc, xk, mask=only_if(own, r < rows))
                tl.store(near + vc, xv, mask=only_if(in_value, r < rows))
                row = slot * window + r
                fits = r < window
                tl.store(keys + (row * KEYS + head) * DK + d, k, mask=only_if(own, fits))
                tl.store(values + row * (HEADS * DV) + vd, v, mask=only_if(in_value, fits))
                tl.store(decays + row * HEADS + h, g, mask=fits)
                tl.store(betas + row * HEADS + h, beta, mask=fits)
            q_taps = (q_taps[1], q_taps[2], xq)
            k_taps = (k_taps[1], k_taps[2], xk)
            v_taps = (v_taps[1], v_taps[2], xv)
            # The next row's inputs are on their way while this row is worked on.
            more = t + 1 < end
            xq = _float(query + (t + 1) * q_row + qd, only_if(in_key, more))
            xk = _float(key + (t + 1) * k_row + qd, only_if(in_key, more))
            xv = _float(value + (t + 1) * v_row + vd, only_if(in_value, more))
        s, o = advance(s, q, k, v, tl.exp(g), beta)
        s = rounded(s, STATE, PLAIN)
        if i < owed:
            if stays & (i == owed - 1):
                store_matrix(place, s, L, V, DK, DV)
        else:
            y = rounded(_normed(o * scale, z, weight, eps, DV), TYPE, PLAIN)
            tl.store(out + t * (HEADS * DV) + vd, y, mask=in_value)
    if not stays:
        store_matrix(place, s, L, V, DK, DV)
        if ends:
            own = only_if(in_key, writes)
            tl.debug_barrier()
            _commit(inputs, slot, q_taps, qd, own, C, W)
            _commit(inputs, slot, k_taps, kc, own, C, W)
            _commit(inputs, slot, v_taps, vc, in_value, C, W)


@triton.jit(do_not_specialize=["B"])
def norm_chunks(
    core,  # [T, HEADS, DV]
    gate,
    norm,
    out,
    offsets,
    lengths,
    held,
    B,
    gate_row,
    eps,
    HEADS: tl.constexpr,
    DV: tl.constexpr,
    V: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_B: tl.constexpr,
    TYPE: tl.constexpr,
    PLAIN: tl.constexpr,
):
    """Gated norm of the rows of whole chunks; grid (parts of ROWS rows of chunks, V heads)."""
    part, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    parts: tl.constexpr = CHUNK // ROWS
    first = first_row(part // parts, offsets, lengths, held, B, BLOCK_B)
    if first < 0:
        return
    t = (first + part % parts * ROWS + tl.arange(0, ROWS))[:, None]
    lane = tl.arange(0, V)
    live = (lane < DV)[None, :]
    column = h * DV + lane[None, :]
    o = _float(core + t * (HEADS * DV) + column, live)
    size = tl.sum(o * o, axis=1) / DV
    normed = o * tl.rsqrt(size + eps)[:, None] * _float(norm + lane, lane < DV)[None, :]
    y = normed * silu(_float(gate + t * gate_row + column, live))
    tl.store(out + t * (HEADS * DV) + column, rounded(y, TYPE, PLAIN), mask=live)
