"""What one sequence's request does to a row of logits before a token is drawn from it."""

from collections.abc import Mapping
from collections.abc import Sequence as Items

import numpy as np
import torch
from torch import Tensor

from ninfer import ops
from ninfer.request import SamplingParams, TokenConstraint


def biased(params: Items[SamplingParams], logits: Tensor) -> Tensor:
    """logits [R, V] with the bias of each row's request; the same tensor if there is none."""
    pairs = [(row, bias) for row, p in enumerate(params) for bias in p.logit_bias]
    if not pairs:
        return logits
    return ops.add_bias(
        logits,
        torch.tensor([row for row, _ in pairs], device=logits.device),
        torch.tensor([bias.token_id for _, bias in pairs], device=logits.device),
        torch.tensor([bias.value for _, bias in pairs], device=logits.device),
    )


def is_penalised(params: SamplingParams) -> bool:
    """Whether a draw depends on the tokens drawn before it; greedy ignores penalties."""
    given = params.presence_penalty, params.frequency_penalty, params.repetition_penalty
    return params.temperature > 0 and given != (0, 0, 1)


def penalised(
    params: Items[SamplingParams], counts: Items[Mapping[int, int]], logits: Tensor
) -> Tensor:
    """logits [R, V] less the penalties of ids that row i's sequence generated `counts[i]` times.

    Rows without penalties keep their values.
    """
    rows: list[int] = []
    tokens: list[int] = []
    times: list[int] = []
    for row, (param, seen) in enumerate(zip(params, counts, strict=True)):
        if is_penalised(param):
            rows += [row] * len(seen)
            tokens += seen.keys()
            times += seen.values()
    if not rows:
        return logits
    device = logits.device
    # Only the pairs go to the device, not a table as wide as the vocabulary.
    where, ids, often = torch.from_numpy(np.array((rows, tokens, times))).to(device)
    dense = torch.zeros(logits.shape, dtype=torch.int32, device=device)
    dense[where, ids] = often.int()
    factors = [(p.presence_penalty, p.frequency_penalty, p.repetition_penalty) for p in params]
    return ops.penalise(logits, dense, *_columns(factors).to(device))


def _columns(rows: Items[Items[float]]) -> Tensor:
    return torch.from_numpy(np.array(rows, dtype=np.float32).T.copy())


def constrained(constraint: TokenConstraint, logits: Tensor) -> Tensor:
    """logits [1, V] with -inf for ids that may not come next."""
    words = torch.frombuffer(bytearray(constraint.allowed()), dtype=torch.int32)
    return ops.mask(logits, words.unsqueeze(0).to(logits.device))
