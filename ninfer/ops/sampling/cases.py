"""Input cases of sampling."""

from functools import partial
from typing import Any, Final

import torch

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.sampling import (
    argmax,
    candidates,
    draw,
    finite_rows,
    logprobs,
    penalise,
    sample,
)
from ninfer.ops.tensors import Candidates


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


def _penalise(inputs: Inputs) -> Call:
    arguments = {
        "logits": inputs.normal(3, 50),
        "counts": inputs.integers(0, 4, 3, 50).to(torch.int32),
        "presence": inputs.normal(3, dtype=torch.float32),
        "frequency": inputs.normal(3, dtype=torch.float32),
    }
    return Call(arguments)


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
        )
    ),
    Case(draw, "padded", _draw),
    Case(penalise, "counts", _penalise),
    Case(logprobs, "below_limit", _logprobs),
)
