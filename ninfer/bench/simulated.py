"""Acceptance that is drawn instead of earned: random weights agree with no drafter."""

import torch
from torch import Tensor

from ninfer import ops

_PURPOSE = 0


class SimulatedAcceptance:
    """Stands in for `ops.accept_drafts` in rounds of one width: each draft is right by chance.

    A draft is right with probability `rate`, by a counter on the device, so that a captured round
    draws anew at every replay. Where none fails first, all tokens of the block stand.
    """

    def __init__(self, rate: float, device: torch.device) -> None:
        self._rate = torch.full((1,), rate, dtype=torch.float32, device=device)
        self._turn = torch.zeros(1, dtype=torch.int64, device=device)

    def set(self, rate: float) -> None:
        """Change the rate, also of rounds that are captured."""
        self._rate.fill_(rate)

    def __call__(self, tokens: Tensor, drafts: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Counts and newest tokens, as `ops.accept_drafts` gives them."""
        count = offsets.shape[0] - 1
        width = tokens.shape[0] // count
        self._turn += 1
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        turns = self._turn.expand(tokens.shape[0]).contiguous()
        drawn = ops.uniforms(rows, turns, torch.full_like(rows, _PURPOSE)).view(count, width)
        fails = drawn >= self._rate
        fails[:, -1] = True
        counts = fails.to(torch.int32).argmax(1) + 1
        newest = tokens.view(count, width).gather(1, counts.unsqueeze(1) - 1).squeeze(1)
        return counts, newest


def rate_for(tokens_a_round: float, drafts: int) -> float:
    """The chance of each draft at which a round of so many gives that many tokens on average.

    1 + r + r^2 + ... + r^drafts, solved by halving. Raises ValueError for what no rate gives.
    """
    if not 1 <= tokens_a_round <= 1 + drafts:
        raise ValueError(f"{tokens_a_round} tokens a round of {drafts} drafts: must be in 1..")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        total = sum(middle**i for i in range(drafts + 1))
        low, high = (middle, high) if total < tokens_a_round else (low, middle)
    return low
