"""What one sequence's request does to a row of logits before a token is drawn from it."""

from collections.abc import Mapping
from collections.abc import Sequence as Items

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


def penalised(params: SamplingParams, counts: Mapping[int, int], logits: Tensor) -> Tensor:
    """logits [1, V] less the penalties of ids that were generated `counts` times."""
    if not counts:
        return logits
    device = logits.device
    dense = torch.zeros(logits.shape, dtype=torch.int64)
    dense[0, list(counts)] = torch.tensor(list(counts.values()))
    return ops.penalise(
        logits,
        dense.to(device),
        torch.tensor([params.presence_penalty], device=device),
        torch.tensor([params.frequency_penalty], device=device),
        torch.tensor([params.repetition_penalty], device=device),
    )


def constrained(constraint: TokenConstraint, logits: Tensor) -> Tensor:
    """logits [1, V] with -inf for ids that may not come next."""
    words = torch.frombuffer(bytearray(constraint.allowed()), dtype=torch.int32)
    return ops.mask(logits, words.unsqueeze(0).to(logits.device))
