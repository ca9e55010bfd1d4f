"""Heads that draft tokens are read from: the whole output head, or an indexed part of it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.config import ModelConfig
from ninfer.models.parameters import ParameterTable
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.models.qwen3_6.weights import WeightSource, component_rows
from ninfer.ops.tensors import Weight


@dataclass(frozen=True, slots=True)
class ProposalHead:
    """A head whose row i stands for token `token_ids[i]`; rows from N on stand for none."""

    weight: Weight  # [rows, hidden]
    token_ids: Tensor  # [N] int64, all different, N <= rows


def full_head(head: Weight, addressable: int) -> ProposalHead:
    """The model's own output head; ids from `addressable` on are never proposed."""
    return ProposalHead(head, torch.arange(addressable, device=head.device))


def bind_draft_head(
    source: WeightSource, config: ModelConfig, places: Recipe | ParameterTable
) -> ProposalHead:
    """The small head over the most frequent tokens, kept beside the output head; see `bind_text`.

    `source` must hand out the token ids as integers.
    """
    rows = component_rows(source, config, places, "proposal/")
    head, token_ids = rows.take("proposal/head"), rows.tensor("proposal/token_ids")
    assert not token_ids.is_floating_point(), token_ids.dtype
    return ProposalHead(head, token_ids.to(torch.int64))


def proposal_logits(head: ProposalHead, hidden: Tensor) -> Tensor:
    """Logits [R, rows] of hidden [R, hidden] after a drafter's final norm."""
    return ops.linear(hidden, head.weight)


def greedy_drafts(head: ProposalHead, hidden: Tensor) -> Tensor:
    """The best token of each row of hidden [R, hidden], the lowest id on ties, as [R] int64.

    A row whose logits are not finite gives -1.
    """
    return ops.indexed_argmax(proposal_logits(head, hidden), head.token_ids)
