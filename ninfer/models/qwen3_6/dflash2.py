"""DFlash2: a block drafter with dynamic convolutions and a walk over pairs of candidates."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.config import ModelConfig
from ninfer.models.parameters import ParameterTable
from ninfer.models.qwen3_6.block_drafter import DraftBlock
from ninfer.models.qwen3_6.block_weights import BlockDrafterWeights, bind_block_drafter
from ninfer.models.qwen3_6.proposal import ProposalHead, proposal_logits
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.models.qwen3_6.weights import WeightSource, component_rows
from ninfer.ops.tensors import Candidates, Weight


@dataclass(frozen=True, slots=True)
class SelectorWeights:
    """Scores of one token following another, given the hidden state between them."""

    hidden_projection: Weight  # [rank, hidden]
    predecessors: Tensor  # [vocab_rows, rank]
    successors: Tensor  # [vocab_rows, rank]


@dataclass(frozen=True, slots=True)
class Dflash2Weights:
    """The block drafter and the selector that chooses among its candidates."""

    drafter: BlockDrafterWeights
    selector: SelectorWeights


@dataclass(frozen=True, slots=True)
class SparseDrafts:
    """Drafts of M masks, each with the distribution that it was drawn from.

    `probabilities[m]` lies on `ids[m]` and is 1 at the draft of a greedy row. A verifier that
    accepts by min(1, p / q) takes q from here.
    """

    tokens: Tensor  # [M] int64
    ids: Tensor  # [M, C] int64, best first by the head's logit
    probabilities: Tensor  # [M, C] float32


def bind_dflash2(
    source: WeightSource, config: ModelConfig, places: Recipe | ParameterTable
) -> Dflash2Weights:
    """Build the view from stored objects, each asked for exactly once; see `bind_text`."""
    sizes = config.dflash2
    assert sizes is not None
    rows = component_rows(source, config, places, "dflash2/")
    windows = (sizes.window,) * sizes.layers
    drafter = bind_block_drafter(rows, "dflash2", sizes, windows, convolutions=True)
    prefix = "dflash2/candidate_selector"
    selector = SelectorWeights(
        hidden_projection=rows.take(f"{prefix}/hidden_projection"),
        predecessors=rows.tensor(f"{prefix}/predecessor_codebook"),
        successors=rows.tensor(f"{prefix}/successor_codebook"),
    )
    return Dflash2Weights(drafter, selector)


def select_drafts(
    weights: SelectorWeights,
    head: ProposalHead,
    hidden: Tensor,
    block: DraftBlock,
    *,
    top_k: int,
    temperature: Tensor,
    u: Tensor,
) -> SparseDrafts:
    """Choose the drafts of each sequence one after another, each given the one before.

    The `top_k` best tokens of each mask row of hidden [M, hidden] are its candidates; the edge
    score of candidate c after token p is its logit plus predecessors[p] . (W hidden *
    successors[c]). Step 0 starts from the anchor. With temperature [B] float <= 0 the best edge
    is taken, the higher-ranked candidate on ties; else one is drawn from softmax(edges /
    temperature) by inverse CDF with u [M] in [0, 1), for which the caller uses
    `Purpose.PROPOSAL` and the mask's position.
    """
    count = min(top_k, head.token_ids.shape[0])
    logits, ids = ops.indexed_top(proposal_logits(head, hidden), head.token_ids, count)
    gate = ops.linear(hidden, weights.hidden_projection)  # [M, rank]
    tokens = ids.new_empty(ids.shape[0])
    probabilities = logits.new_empty(logits.shape, dtype=torch.float32)
    previous = block.anchors.clone()
    for live, rows in _steps(block.counts, hidden.device):
        edges = ops.edge_scores(
            logits[rows],
            ids[rows],
            previous[live],
            gate[rows],
            weights.predecessors,
            weights.successors,
        )
        law = ops.tempered_softmax(edges, temperature[live]).to(torch.float32)
        probabilities[rows] = law
        # Drawn from the rounded numbers, since these are what acceptance divides by.
        previous[live] = ops.draw(Candidates(ids[rows], law.to(torch.float64)), u[rows])
        tokens[rows] = previous[live]
    return SparseDrafts(tokens, ids, probabilities)


def _steps(
    counts: Sequence[int], device: torch.device
) -> list[tuple[Tensor | slice, Tensor | slice]]:
    """For each step of the walk the sequences that take part, and their rows among all masks."""
    if len(set(counts)) == 1:
        # Nothing has to go to the device, so that a walk of equal counts can be captured.
        return [(slice(None), slice(step, None, counts[0])) for step in range(counts[0])]
    starts = [0, *accumulate(counts)]
    steps: list[tuple[Tensor | slice, Tensor | slice]] = []
    for step in range(max(counts, default=0)):
        live = [b for b, count in enumerate(counts) if count > step]
        rows = [starts[b] + step for b in live]
        steps.append((torch.tensor(live, device=device), torch.tensor(rows, device=device)))
    return steps
