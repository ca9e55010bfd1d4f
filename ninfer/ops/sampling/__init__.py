"""Contract of sampling: penalties, bias, masks, candidate cuts, draws, log-probabilities."""

from typing import Final

import torch
from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.sampling import reference
from ninfer.ops.tensors import (
    AllowedTokens,
    Candidates,
    DrawSettings,
    TokenBias,
    TokenPenalties,
)

_PENALISE: Final = Route(reference.penalise)
_ADD_BIAS: Final = Route(reference.add_bias)
_MASK: Final = Route(reference.mask)
_FINITE_ROWS: Final = Route(reference.finite_rows)
_ARGMAX: Final = Route(reference.argmax)
_CANDIDATES: Final = Route(reference.candidates)
_DRAW: Final = Route(reference.draw)
_SAMPLE: Final = Route(reference.sample)
_NEXT_TOKENS: Final = Route(reference.next_tokens)
_UNIFORMS: Final = Route(reference.uniforms)
_LOGPROBS: Final = Route(reference.logprobs)
_TOP_LOGPROBS: Final = Route(reference.top_logprobs)
_SETTINGS: Final = ("temperature", "top_k", "top_p", "min_p", "u")


def penalise(
    logits: Tensor,
    counts: Tensor,
    presence: Tensor,
    frequency: Tensor,
    repetition: Tensor | None = None,
) -> Tensor:
    """x - presence * [count > 0] - frequency * count, of x = the logit after `repetition`.

    Repetition comes first: where count > 0, a positive logit is divided by it and any other one
    multiplied (CTRL, Keskar et al. 2019); 1 and None change nothing. `counts` says how often a
    sequence has generated each id; the caller leaves the prompt out.
    Shapes: logits [R, V], counts [R, V] integers >= 0, presence and frequency [R] floats,
    repetition [R] floats > 0 -> [R, V] float32 (float64 for float64).
    Raises ValueError for shapes that disagree.
    """
    op = "penalise"
    checks.activation(op, "logits", logits, 2)
    checks.shaped(op, "counts", counts, logits.shape, logits)
    if counts.dtype.is_floating_point:
        raise checks.wrong(op, "counts", counts.dtype, "integers")
    checks.shaped(op, "presence", presence, logits.shape[:1], logits)
    checks.shaped(op, "frequency", frequency, logits.shape[:1], logits)
    if repetition is not None:
        checks.shaped(op, "repetition", repetition, logits.shape[:1], logits)
    return _PENALISE.run(logits, counts, presence, frequency, repetition)


def add_bias(logits: Tensor, rows: Tensor, ids: Tensor, values: Tensor) -> Tensor:
    """logits with values[n] added at (rows[n], ids[n]); the pairs are all different.

    Shapes: logits [R, V], rows and ids [N] int64, values [N] floats -> [R, V] float32 (float64 for
    float64). Raises ValueError for shapes or types that disagree.
    """
    checks.activation("add_bias", "logits", logits, 2)
    checks.activation("add_bias", "values", values, 1)
    checks.indices("add_bias", "rows", rows, values.shape, logits)
    checks.indices("add_bias", "ids", ids, values.shape, logits)
    return _ADD_BIAS.run(logits, rows, ids, values)


def mask(logits: Tensor, allowed: Tensor) -> Tensor:
    """logits where an id is allowed, -inf elsewhere.

    Bit i % 32 of word i // 32 stands for id i (the bitmasks of llguidance); ids behind the last
    word are not allowed. Shapes: logits [R, V], allowed [R, W] int32, W <= ceil(V / 32)
    -> [R, V] in the type of logits. Raises ValueError for shapes or types that disagree.
    """
    checks.activation("mask", "logits", logits, 2)
    if allowed.dtype is not torch.int32:
        raise checks.wrong("mask", "allowed", allowed.dtype, "int32")
    words = -(-logits.shape[1] // 32)
    if allowed.ndim != 2 or allowed.shape[1] > words:
        seen = f"of shape {tuple(allowed.shape)}"
        raise checks.wrong("mask", "allowed", seen, f"of shape ({logits.shape[0]}, <= {words})")
    checks.shaped("mask", "allowed", allowed, (logits.shape[0], allowed.shape[1]), logits)
    return _MASK.run(logits, allowed)


def finite_rows(logits: Tensor, limit: int) -> Tensor:
    """Whether a row can be sampled: no NaN or +inf among ids below `limit`, and not all -inf.

    Shapes: logits [R, V] -> [R] bool. Raises ValueError for a limit outside 1..V.
    """
    _check_logits("finite_rows", logits, limit)
    return _FINITE_ROWS.run(logits, limit)


def argmax(logits: Tensor, limit: int) -> Tensor:
    """Id of the largest logit among ids below `limit`, the lowest on ties.

    A row that `finite_rows` refuses gives -1. Shapes: logits [R, V] -> [R] int64.
    Raises ValueError for a limit outside 1..V.
    """
    _check_logits("argmax", logits, limit)
    return _ARGMAX.run(logits, limit)


def candidates(
    logits: Tensor,
    *,
    limit: int,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
) -> Candidates:
    """The tokens of each row that a draw may give, with their weights.

    Ids below `limit` are ranked by logit, lower id first on ties; the best top_k stay (0: all).
    Weights are w_j = exp((x_j - x_0) / temperature). The list ends before the first j with
    w_j < min_p * w_0, and after the first j where the running sum of w reaches top_p times the
    sum over the top_k (top_p >= 1 cuts nothing, 0 leaves the best). Temperature <= 0 leaves the
    best token alone; a row that `finite_rows` refuses leaves the id -1 alone.
    Shapes: logits [R, V]; temperature, top_p, min_p [R] floats and top_k [R] integers, on any
    device -> Candidates of R rows, as many columns as the longest list has weights above 0.
    Raises ValueError for a limit outside 1..V and for settings that are not [R] or of another kind.
    """
    _check_logits("candidates", logits, limit)
    _check_settings("candidates", logits, temperature, top_k, top_p, min_p)
    return _CANDIDATES.run(
        logits, limit=limit, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
    )


def draw(choice: Candidates, u: Tensor) -> Tensor:
    """Inverse CDF: the first candidate whose running weight exceeds u times the row's sum.

    Shapes: choice of R rows, u [R] in [0, 1) -> [R] int64. Raises ValueError for another shape.
    """
    checks.shaped("draw", "u", u, choice.ids.shape[:1], choice.ids)
    return _DRAW.run(choice, u)


def sample(
    logits: Tensor,
    *,
    limit: int,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    u: Tensor,
) -> Tensor:
    """`draw` from `candidates`: the next token of each row; temperature <= 0 is `argmax`.

    A row that `finite_rows` refuses gives -1. Only as much of a row is ranked as u asks for, so a
    sum of weights may differ from that of `draw` in its last digit.
    Shapes as there, u [R] floats in [0, 1) on any device -> [R] int64.
    Raises ValueError for a limit outside 1..V and for settings that are not [R] or of another kind.
    """
    _check_logits("sample", logits, limit)
    _check_settings("sample", logits, temperature, top_k, top_p, min_p, u)
    return _SAMPLE.run(
        logits, limit=limit, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, u=u
    )


def next_tokens(
    logits: Tensor,
    draws: DrawSettings,
    *,
    limit: int,
    bias: TokenBias | None = None,
    penalties: TokenPenalties | None = None,
    allowed: AllowedTokens | None = None,
) -> Tensor:
    """The next token of each row: `add_bias`, `penalise`, `mask`, then `sample`, with no wait.

    All that differs between rows is on the device, so one captured call serves greedy and sampled
    rows, with rules and without. A row whose logits cannot be used after the rules gives -1.
    Shapes: logits [R, V], the views as they say, masks of W <= ceil(V / 32) words -> [R] int64.
    Raises ValueError for a limit outside 1..V and for shapes, types or devices that disagree.
    """
    op = "next_tokens"
    _check_logits(op, logits, limit)
    settings = (draws.temperature, draws.top_k, draws.top_p, draws.min_p)
    _check_settings(op, logits, *settings)
    rows, vocabulary = logits.shape
    for name, setting in zip(_SETTINGS, settings, strict=False):
        checks.shaped(op, name, setting, (rows,), logits)
    for name in ("seeds", "positions", "purposes"):
        checks.indices(op, name, getattr(draws, name), (rows,), logits)
    if bias is not None:
        checks.indices(op, "bias.ids", bias.ids, (rows, bias.ids.shape[-1]), logits)
        checks.shaped(op, "bias.values", bias.values, bias.ids.shape, logits)
    if penalties is not None:
        table = (penalties.counts.shape[0], vocabulary)
        checks.shaped(op, "penalties.counts", penalties.counts, table, logits)
        if penalties.counts.dtype is not torch.int32:
            raise checks.wrong(op, "penalties.counts", penalties.counts.dtype, "int32")
        checks.indices(op, "penalties.rows", penalties.rows, (rows,), logits)
        earlier = (rows, penalties.earlier.shape[-1])
        checks.indices(op, "penalties.earlier", penalties.earlier, earlier, logits)
        for name in ("presence", "frequency", "repetition"):
            checks.shaped(op, f"penalties.{name}", getattr(penalties, name), (rows,), logits)
    if allowed is not None:
        words = min(allowed.masks.shape[-1], -(-vocabulary // 32))
        if allowed.masks.dtype is not torch.int32:
            raise checks.wrong(op, "allowed.masks", allowed.masks.dtype, "int32")
        checks.shaped(op, "allowed.masks", allowed.masks, (allowed.masks.shape[0], words), logits)
        checks.indices(op, "allowed.rows", allowed.rows, (rows,), logits)
    return _NEXT_TOKENS.run(
        logits, draws, limit=limit, bias=bias, penalties=penalties, allowed=allowed
    )


def uniforms(seeds: Tensor, positions: Tensor, purposes: Tensor) -> Tensor:
    """`uniform` of each seed (its bits modulo 2^64), position and purpose, bit for bit.

    Shapes: three [R] int64 -> [R] float32 in [0, 1). Raises ValueError for shapes that disagree.
    """
    for name, x in (("seeds", seeds), ("positions", positions), ("purposes", purposes)):
        checks.indices("uniforms", name, x, (seeds.shape[0],), seeds)
    return _UNIFORMS.run(seeds, positions, purposes)


def logprobs(logits: Tensor, ids: Tensor, limit: int) -> Tensor:
    """log softmax over the ids below `limit`, read at `ids`.

    Shapes: logits [R, V], ids [R, N] int64 below limit -> [R, N] float32 (float64 for float64).
    Raises ValueError for a limit outside 1..V and for shapes that disagree.
    """
    _check_logits("logprobs", logits, limit)
    checks.indices("logprobs", "ids", ids, (logits.shape[0], ids.shape[-1]), logits)
    return _LOGPROBS.run(logits, ids, limit)


def top_logprobs(logits: Tensor, limit: int, n: int) -> tuple[Tensor, Tensor]:
    """(ids, values): the n most likely ids below `limit` and their `logprobs`, best first.

    Lower id first on ties. A row that `finite_rows` refuses gives ids -1 and NaN.
    Shapes: logits [R, V] -> [R, n] int64 and [R, n] float32 (float64 for float64).
    Raises ValueError for a limit outside 1..V and n outside 0..limit.
    """
    _check_logits("top_logprobs", logits, limit)
    if not 0 <= n <= limit:
        raise checks.wrong("top_logprobs", "n", n, f"in 0..{limit}")
    return _TOP_LOGPROBS.run(logits, limit, n)


def _check_logits(op: str, logits: Tensor, limit: int) -> None:
    checks.activation(op, "logits", logits, 2)
    if not 1 <= limit <= logits.shape[1]:
        raise checks.wrong(op, "limit", limit, f"in 1..{logits.shape[1]}")


def _check_settings(op: str, logits: Tensor, *settings: Tensor) -> None:
    for name, setting in zip(_SETTINGS, settings, strict=False):
        if setting.shape != logits.shape[:1]:
            seen = f"of shape {tuple(setting.shape)}"
            raise checks.wrong(op, name, seen, f"of shape ({logits.shape[0]},)")
        if setting.is_floating_point() == (name == "top_k"):
            wanted = "integers" if name == "top_k" else "floats"
            raise checks.wrong(op, name, setting.dtype, wanted)
