"""Input cases of sampling."""

from functools import partial
from typing import Any, Final

import torch

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.sampling import (
    add_bias,
    argmax,
    candidates,
    draw,
    finite_rows,
    logprobs,
    mask,
    next_tokens,
    penalise,
    sample,
    top_logprobs,
    uniforms,
)
from ninfer.ops.tensors import (
    AllowedTokens,
    Candidates,
    DrawSettings,
    TokenBias,
    TokenPenalties,
)


def _settings(inputs: Inputs) -> dict[str, Any]:
    """Seven rows: greedy, plain, top-k, top-p, min-p, all three, and a tiny temperature."""
    floats = torch.tensor(
        [
            [0.0, 1.0, 0.7, 1.0, 1.3, 0.6, 1e-9],
            [1.0, 1.0, 1.0, 0.8, 1.0, 0.95, 0.9],
            [0.0, 0.0, 0.0, 0.0, 0.1, 0.02, 0.0],
        ],
        device=inputs.device,
    )
    top_k = torch.tensor([0, 0, 20, 0, 0, 20, 5], device=inputs.device)
    return {"temperature": floats[0], "top_k": top_k, "top_p": floats[1], "min_p": floats[2]}


def _choose(vocabulary: int, limit: int, tied: bool, draws: bool, inputs: Inputs) -> Call:
    logits = inputs.normal(7, vocabulary, scale=3.0)
    logits = logits.round() if tied else logits
    arguments = {"logits": logits, "limit": limit, **_settings(inputs)}
    if draws:
        arguments["u"] = inputs.uniform(7, dtype=torch.float32)
    return Call(arguments)


def _next(vocabulary: int, limit: int, rules: str, inputs: Inputs) -> Call:
    """The seven settings, of which rules leave out some rows each."""
    own = _settings(inputs)
    seeds = inputs.integers(-(2**63), 2**63 - 1, 7)
    purposes = inputs.integers(0, 6, 7)
    draws = DrawSettings(
        **own, seeds=seeds, positions=inputs.integers(0, 2**18, 7), purposes=purposes
    )
    arguments: dict[str, Any] = {
        "logits": inputs.normal(7, vocabulary, scale=3.0),
        "draws": draws,
        "limit": limit,
        "bias": None,
        "penalties": None,
        "allowed": None,
    }
    if "bias" in rules:
        ids = torch.stack([inputs.shuffled(limit)[:5] for _ in range(7)])
        ids[1:3, 2:] = -1
        arguments["bias"] = TokenBias(ids, inputs.normal(7, 5, scale=8.0, dtype=torch.float32))
    if "penalties" in rules:
        counts = (inputs.integers(0, 6, 3, vocabulary) - 2).clamp_min(0).to(torch.int32)
        earlier = inputs.integers(-1, limit, 7, 3)
        earlier[:, 1] = earlier[:, 0]
        arguments["penalties"] = TokenPenalties(
            counts,
            inputs.integers(-1, 3, 7),
            earlier,
            inputs.uniform(7, dtype=torch.float32),
            inputs.normal(7, dtype=torch.float32),
            inputs.uniform(7, dtype=torch.float32) + 0.5,
        )
    if "allowed" in rules:
        words = -(-limit // 32) - 1
        masks = inputs.integers(-(2**31), 2**31, 2, words).to(torch.int32)
        arguments["allowed"] = AllowedTokens(masks, inputs.integers(-1, 2, 7))
    return Call(arguments)


def _uniforms(inputs: Inputs) -> Call:
    seeds = inputs.integers(-(2**63), 2**63 - 1, 300)
    seeds[:3] = torch.tensor([0, -1, 42], device=inputs.device)
    places = {"positions": inputs.integers(0, 2**20, 300), "purposes": inputs.integers(0, 6, 300)}
    return Call({"seeds": seeds, **places})


def _rows(limit: int, inputs: Inputs) -> Call:
    """Five rows, of which the middle three hold NaN, +inf, and nothing but -inf below `limit`."""
    logits = inputs.normal(5, 40).round()
    logits[1, limit - 1], logits[2, 0], logits[3, :limit] = torch.nan, torch.inf, -torch.inf
    logits[4, : limit - 1] = -torch.inf
    return Call({"logits": logits, "limit": limit})


def _draw(inputs: Inputs) -> Call:
    weights = inputs.uniform(6, 9, dtype=torch.float64)
    weights[:, 6:] = 0
    choice = Candidates(inputs.integers(0, 1000, 6, 9), weights)
    return Call({"choice": choice, "u": inputs.uniform(6, dtype=torch.float32)})


def _penalise(repeats: bool, inputs: Inputs) -> Call:
    arguments = {
        "logits": inputs.normal(3, 50),
        "counts": inputs.integers(0, 4, 3, 50).to(torch.int32),
        "presence": inputs.normal(3, dtype=torch.float32),
        "frequency": inputs.normal(3, dtype=torch.float32),
        "repetition": inputs.uniform(3, dtype=torch.float32) + 0.5 if repeats else None,
    }
    return Call(arguments)


def _bias(count: int, inputs: Inputs) -> Call:
    places = inputs.shuffled(4 * 30)[:count]
    values = inputs.normal(count, scale=5.0, dtype=torch.float32)
    logits = inputs.normal(4, 30)
    return Call({"logits": logits, "rows": places // 30, "ids": places % 30, "values": values})


def _mask(vocabulary: int, words: int, inputs: Inputs) -> Call:
    allowed = inputs.integers(-(2**31), 2**31, 3, words).to(torch.int32)
    return Call({"logits": inputs.normal(3, vocabulary), "allowed": allowed})


def _top_logprobs(vocabulary: int, limit: int, n: int, tied: bool, inputs: Inputs) -> Call:
    logits = inputs.normal(3, vocabulary, scale=4.0)
    return Call({"logits": logits.round() if tied else logits, "limit": limit, "n": n})


def _logprobs(inputs: Inputs) -> Call:
    ids = inputs.integers(0, 490, 4, 6)
    return Call({"logits": inputs.normal(4, 512, scale=5.0), "ids": ids, "limit": 490})


CASES: Final = (
    *(
        Case(op, f"rows_below_{n}", partial(_rows, n))
        for op in (finite_rows, argmax)
        for n in (40, 9)
    ),
    *(
        Case(op, name, partial(_choose, vocabulary, limit, tied, op is sample))
        for op in (candidates, sample)
        for name, vocabulary, limit, tied in (
            ("vocabulary_1000", 1000, 990, False),
            ("ties", 300, 300, True),
            ("three_ids", 8, 3, False),
            ("long_rows", 6000, 5990, False),
        )
    ),
    *(
        Case(next_tokens, name, partial(_next, vocabulary, limit, rules))
        for name, vocabulary, limit, rules in (
            ("free", 1000, 990, ""),
            ("biased", 300, 290, "bias"),
            ("penalised", 1000, 990, "penalties"),
            ("constrained", 1000, 1000, "allowed"),
            ("all_rules", 5000, 4990, "bias penalties allowed"),
        )
    ),
    Case(uniforms, "any_seed", _uniforms),
    Case(draw, "padded", _draw),
    Case(penalise, "counts", partial(_penalise, False)),
    Case(penalise, "repetition", partial(_penalise, True)),
    Case(add_bias, "some", partial(_bias, 9)),
    Case(add_bias, "none", partial(_bias, 0)),
    Case(mask, "all_words", partial(_mask, 70, 3)),
    Case(mask, "fewer_words", partial(_mask, 100, 2)),
    Case(logprobs, "below_limit", _logprobs),
    Case(top_logprobs, "long_row", partial(_top_logprobs, 5000, 4990, 20, False)),
    Case(top_logprobs, "ties", partial(_top_logprobs, 300, 300, 5, True)),
)
