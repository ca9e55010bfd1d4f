"""Losses of the decoder and its MTP layer, and how often a whole answer is right."""

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
    """What one batch gives."""

    total: Tensor  # to minimise: a sum over the batch's weights
    parts: Tensor  # [1 + depth] float32, sums of the decoder's loss and of each MTP step's
    wrong: Tensor  # [B, T] bool, tokens of answers that are not the likeliest


def losses(model: DemoModel, batch: Batch, embedded: Tensor, depth: int) -> Losses:
    """Losses with `depth` MTP steps; `embedded` [B, T, hidden] is what the decoder reads."""
    hidden, _ = model.hidden(embedded, batch)
    logits = model.lm_head(hidden)
    text = _loss(logits, batch, 1)
    states = model.drafts(embedded, hidden, batch, depth)
    drafts = [_loss(model.lm_head(state), batch, 2 + i) for i, state in enumerate(states)]
    total = text
    if drafts:
        total = total + MTP_WEIGHT / len(drafts) * torch.stack(drafts).sum()
    found = [m.balance for m in model.modules() if isinstance(m, SparseMoe)]
    balance = [b for b in found if b is not None]
    if balance:
        total = total + BALANCE_WEIGHT * batch.weights.sum() * torch.stack(balance).mean()
    with torch.no_grad():
        wrong = (logits.argmax(-1).roll(1, dims=1) != batch.ids) & batch.targets
        parts = torch.stack([text, *drafts]).detach()
    return Losses(total, parts, wrong)


def _loss(logits: Tensor, batch: Batch, ahead: int) -> Tensor:
    """Weighted sum of cross entropies of the tokens `ahead` places behind each state.

    A state and its token are of one document.
    """
    same = batch.documents.offsets >= ahead
    weights = torch.where(same, batch.weights, 0.0).roll(-ahead, dims=1)
    truth = batch.ids.roll(-ahead, dims=1).flatten()
    each = functional.cross_entropy(logits.flatten(0, 1).float(), truth, reduction="none")
    return (each * weights.flatten()).sum()


def right_answers(batch: Batch, wrong: Tensor) -> dict[str, list[int]]:
    """By task, for each sample, whether every token of its answer was the likeliest one.

    Greedy decoding would answer so, as long as there is one right answer.
    """
    failed = torch.zeros(len(batch.tasks) + 1, dtype=torch.int64, device=wrong.device)
    failed.index_add_(0, batch.owners.flatten(), wrong.flatten().long())
    found: dict[str, list[int]] = {}
    for task, count in zip(batch.tasks, failed[:-1].tolist(), strict=True):
        found.setdefault(task, []).append(int(count == 0))
    return found
