"""Losses of the decoder and its MTP layer, and how often a whole answer is right."""

from collections import defaultdict
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from recipes.tiny.batch import Batch
from recipes.tiny.layers import SparseMoe
from recipes.tiny.model import DemoModel

MTP_WEIGHT = 0.3
BALANCE_WEIGHT = 0.01


class Losses(NamedTuple):
    """What one batch gives: the weighted sum to minimise, and figures to show."""

    total: Tensor
    text: Tensor  # weighted sum over tokens
    drafts: list[Tensor]  # the same of each MTP step


def losses(model: DemoModel, batch: Batch, depth: int) -> Losses:
    """Losses summed over the batch's weights, with `depth` MTP steps."""
    embedded = model.embed(batch)
    hidden, _ = model.hidden(embedded, batch.positions)
    text = _loss(model, hidden, batch, 1)
    states = model.drafts(embedded, hidden, batch, depth)
    drafts = [_loss(model, state, batch, 2 + step) for step, state in enumerate(states)]
    total = text
    if drafts:
        total = total + MTP_WEIGHT / len(drafts) * sum(drafts)
    found = [m.balance for m in model.modules() if isinstance(m, SparseMoe)]
    balance = [b for b in found if b is not None]
    if balance:
        total = total + BALANCE_WEIGHT * batch.weights.sum() * sum(balance) / len(balance)
    return Losses(total, text, drafts)


def _loss(model: DemoModel, hidden: Tensor, batch: Batch, ahead: int) -> Tensor:
    """Weighted sum of cross entropies of the tokens `ahead` places behind each state."""
    weights = batch.weights[:, ahead:]
    wanted = weights > 0
    logits = model.lm_head(hidden[:, :-ahead][wanted]).float()
    each = functional.cross_entropy(logits, batch.ids[:, ahead:][wanted], reduction="none")
    return (each * weights[wanted]).sum()


@torch.no_grad()
def right_answers(model: DemoModel, batch: Batch) -> dict[str, list[int]]:
    """By task, for each sample, whether every token of its answer is the likeliest one.

    That is what greedy decoding would answer, as long as there is one right answer.
    """
    hidden, _ = model.hidden(model.embed(batch), batch.positions)
    best = model.lm_head(hidden).argmax(-1)
    wrong = (best[:, :-1] != batch.ids[:, 1:]) & batch.targets[:, 1:]
    found: dict[str, list[int]] = defaultdict(list)
    for task, failed in zip(batch.tasks, wrong.any(-1).tolist(), strict=True):
        found[task].append(int(not failed))
    return found
