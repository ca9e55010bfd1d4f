"""The drafters once more in numpy float64, one row, head and key at a time, sharing no code.

Weights are looked up by the names that artifacts use, so that binding is judged as well. Keys and
values that a cache of float32 words holds are rounded to float32 here too.
"""

import math
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
Named = dict[str, Array]


def rms(x: Array, weight: Array, offset: float = 0.0) -> Array:
    mean = sum(float(v) * float(v) for v in x) / len(x)
    return x / math.sqrt(mean + 1e-6) * (weight + offset)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def rotated(x: Array, axes: tuple[int, int, int], dims: int, theta: float) -> Array:
    """Pair i is (x[i], x[i + dims / 2]); its angle follows position axis i mod 3."""
    out, half = x.copy(), dims // 2
    for i in range(half):
        angle = axes[i % 3] * theta ** (-2 * i / dims)
        a, b = x[i], x[i + half]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = a * math.sin(angle) + b * math.cos(angle)
    return out


def mixed(q: Array, keys: list[Array], values: list[Array], scale: float) -> Array:
    """Softmax attention of one head of one row."""
    scores = [scale * float(q @ key) for key in keys]
    powers = [math.exp(score - max(scores)) for score in scores]
    return sum(p / sum(powers) * v for p, v in zip(powers, values, strict=True))


def stored(x: Array) -> Array:
    return x.astype(np.float32).astype(np.float64)


def swiglu(h: Array, gate_up: Array, down: Array) -> Array:
    half = gate_up.shape[0] // 2
    return down @ (silu(gate_up[:half] @ h) * (gate_up[half:] @ h))


def experts(h: Array, named: Named, prefix: str, top_k: int) -> Array:
    """Softmax over all experts, the best ones renormalised, plus the scaled shared expert."""
    scores = named[f"{prefix}/router_shared_gate"] @ h
    routed, shared = scores[:-1], scores[-1]
    chances = np.exp(routed - routed.max()) / np.exp(routed - routed.max()).sum()
    best = sorted(range(len(routed)), key=lambda e: (-chances[e], e))[:top_k]
    gate_up = named[f"{prefix}/routed_gate_up"].reshape(len(routed), -1, len(h))
    down = named[f"{prefix}/routed_down"].reshape(len(routed), len(h), -1)
    total = sum(
        chances[e] / sum(chances[b] for b in best) * swiglu(h, gate_up[e], down[e]) for e in best
    )
    shared_part = swiglu(h, named[f"{prefix}/shared_gate_up"], named[f"{prefix}/shared_down"])
    return total + sigmoid(shared) * shared_part


@dataclass
class Heads:
    query: int
    kv: int
    dim: int
    rotary: int
    theta: float = 1e7


def mtp(
    named: Named,
    heads: Heads,
    embedding: Array,
    tokens: list[int],
    axes: list[tuple[int, int, int]],
    hidden: Array,
    top_k: int = 0,
) -> Array:
    """Hidden states of the MTP layer for one sequence, all positions from the first."""
    keys: list[list[Array]] = []
    values: list[list[Array]] = []
    rows = []
    q_rows, kv_rows = heads.query * heads.dim, heads.kv * heads.dim
    for t, token in enumerate(tokens):
        fused = np.concatenate(
            [
                rms(embedding[token], named["mtp/embedding_norm"], 1.0),
                rms(hidden[t], named["mtp/hidden_norm"], 1.0),
            ]
        )
        x = named["mtp/input_projection"] @ fused
        h = rms(x, named["mtp/layer/input_norm"], 1.0)
        product = named["mtp/layer/attention/query_key_gate_value"] @ h
        q, k, gate, v = np.split(product, np.cumsum([q_rows, kv_rows, q_rows]))
        k_heads, v_heads = k.reshape(heads.kv, -1), v.reshape(heads.kv, -1)
        norm = named["mtp/layer/attention/key_norm"]
        keys.append(
            [
                stored(rotated(rms(key, norm, 1.0), axes[t], heads.rotary, heads.theta))
                for key in k_heads
            ]
        )
        values.append([stored(value) for value in v_heads])
        out = []
        for i, query in enumerate(q.reshape(heads.query, -1)):
            normed = rms(query, named["mtp/layer/attention/query_norm"], 1.0)
            turned = rotated(normed, axes[t], heads.rotary, heads.theta)
            shared = i // (heads.query // heads.kv)
            seen = ([k[shared] for k in keys], [v[shared] for v in values])
            out.append(mixed(turned, *seen, 1 / math.sqrt(heads.dim)))
        x = x + named["mtp/layer/attention/output"] @ (np.concatenate(out) * sigmoid(gate))
        h = rms(x, named["mtp/layer/post_attention_norm"], 1.0)
        if top_k:
            x = x + experts(h, named, "mtp/layer/moe", top_k)
        else:
            x = x + swiglu(h, named["mtp/layer/mlp/gate_up"], named["mtp/layer/mlp/down"])
        rows.append(rms(x, named["mtp/final_norm"], 1.0))
    return np.array(rows)


def convolved(x: Array, base: Array, deltas: Array, side: int) -> Array:
    """Each channel of each row times its own tap, plus the row before times the older tap."""
    group = x.shape[1] // deltas.shape[3]
    out = np.zeros_like(x)
    for i in range(x.shape[0]):
        for c in range(x.shape[1]):
            g = c // group
            out[i, c] = (base[side, 0, c] + deltas[i, side, 0, g]) * x[i, c]
            if i > 0:
                out[i, c] += (base[side, 1, c] + deltas[i, side, 1, g]) * x[i - 1, c]
    return out


def block_layer_attention(
    h: Array,
    named: Named,
    prefix: str,
    heads: Heads,
    context: Array,
    window: int | None,
) -> Array:
    """Attention rows of a block behind its context [F, hidden] of conditioning vectors."""
    matrix = named[f"{prefix}/query_key_value"]
    q_rows, kv_rows = heads.query * heads.dim, heads.kv * heads.dim
    w_q, w_k, w_v = np.split(matrix, [q_rows, q_rows + kv_rows])
    query_norm, key_norm = named[f"{prefix}/query_norm"], named[f"{prefix}/key_norm"]
    frontier = len(context)

    def turn(x: Array, position: int) -> Array:
        return rotated(x, (position,) * 3, heads.dim, heads.theta)

    keys, values = [], []
    for p, source in enumerate([*context, *h]):
        k = [turn(rms(key, key_norm), p) for key in (w_k @ source).reshape(heads.kv, -1)]
        v = list((w_v @ source).reshape(heads.kv, -1))
        cached = p < frontier
        keys.append([stored(key) if cached else key for key in k])
        values.append([stored(value) if cached else value for value in v])
    out = []
    for i, row in enumerate(h):
        position, parts = frontier + i, []
        near = [p for p in range(len(keys)) if window is None or abs(p - position) < window]
        for j, query in enumerate((w_q @ row).reshape(heads.query, -1)):
            turned = turn(rms(query, query_norm), position)
            shared = j // (heads.query // heads.kv)
            seen = ([keys[p][shared] for p in near], [values[p][shared] for p in near])
            parts.append(mixed(turned, *seen, 1 / math.sqrt(heads.dim)))
        out.append(named[f"{prefix}/output"] @ np.concatenate(parts))
    return np.array(out)


def block_drafter(
    named: Named,
    drafter: str,
    heads: Heads,
    windows: list[int | None],
    embedding: Array,
    features: Array,
    tokens: list[int],
    taps: int = 0,
) -> Array:
    """Final-normed rows of the masks; `tokens` is anchor and masks, `features` [F, n * hidden].

    `taps` is the number of convolution taps, 0 for a drafter without convolutions.
    """
    context = np.array(
        [
            rms(named[f"{drafter}/feature_projection"] @ s, named[f"{drafter}/context_norm"])
            for s in features
        ]
    )
    x = np.array([embedding[token] for token in tokens])

    def around(h: Array, conv: str, part) -> Array:
        if not taps:
            return part(h)
        base, projection = named[f"{conv}/base_kernel"], named[f"{conv}/kernel_projection"]
        deltas = np.array([(projection @ row).reshape(2, taps, -1) for row in h])
        return convolved(part(convolved(h, base, deltas, 0)), base, deltas, 1)

    for layer, window in enumerate(windows):
        prefix = f"{drafter}/layers/{layer}"

        def attend(h: Array, prefix: str = prefix, window: int | None = window) -> Array:
            return block_layer_attention(h, named, f"{prefix}/attention", heads, context, window)

        def mlp(h: Array, prefix: str = prefix) -> Array:
            gate_up, down = named[f"{prefix}/mlp/gate_up"], named[f"{prefix}/mlp/down"]
            return np.array([swiglu(row, gate_up, down) for row in h])

        n = np.array([rms(row, named[f"{prefix}/input_norm"]) for row in x])
        x = x + around(n, f"{prefix}/attention_conv", attend)
        m = np.array([rms(row, named[f"{prefix}/post_attention_norm"]) for row in x])
        x = x + around(m, f"{prefix}/mlp_conv", mlp)
    return np.array([rms(row, named[f"{drafter}/final_norm"]) for row in x[1:]])


def best_ids(head: Array, ids: list[int], hidden: Array, count: int) -> list[tuple[float, int]]:
    """The best (logit, id) pairs of one row, lower id first on ties."""
    logits = [(float(head[row] @ hidden), token) for row, token in enumerate(ids)]
    return sorted(logits, key=lambda pair: (-pair[0], pair[1]))[:count]


def selected(
    named: Named,
    head: Array,
    ids: list[int],
    hidden: Array,
    anchor: int,
    count: int,
    temperature: float,
    u: list[float],
) -> list[tuple[int, list[int], list[float]]]:
    """The walk over candidates: for each mask the draft, the candidate ids, and their chances."""
    prefix = "dflash2/candidate_selector"
    before, after = named[f"{prefix}/predecessor_codebook"], named[f"{prefix}/successor_codebook"]
    previous, out = anchor, []
    for row, number in zip(hidden, u, strict=True):
        candidates = best_ids(head, ids, row, count)
        gate = named[f"{prefix}/hidden_projection"] @ row
        edges = []
        for logit, token in candidates:
            terms = (
                before[previous, r] * gate[r] * after[token, r] for r in range(before.shape[1])
            )
            edges.append(logit + sum(terms))
        if temperature <= 0:
            chances = [0.0] * len(edges)
            chances[edges.index(max(edges))] = 1.0
        else:
            powers = [math.exp((edge - max(edges)) / temperature) for edge in edges]
            chances = [power / sum(powers) for power in powers]
        running, chosen = 0.0, -1
        for (_, token), chance in zip(candidates, chances, strict=True):
            running += chance
            if number < running:
                chosen = token
                break
        out.append((chosen, [token for _, token in candidates], chances))
        previous = chosen
    return out
