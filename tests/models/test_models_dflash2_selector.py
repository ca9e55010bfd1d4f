"""DFlash2's walk over candidates: against a second implementation, ties, and what it draws from."""

import drafter_formulas as formulas
import pytest
import torch
from drafter_scene import ADDRESSABLE, HIDDEN, Objects, recipe_of, small_config
from torch import Tensor

from ninfer.models.qwen3_6.block_drafter import DraftBlock, draft_block
from ninfer.models.qwen3_6.dflash2 import SparseDrafts, bind_dflash2, select_drafts
from ninfer.models.qwen3_6.proposal import ProposalHead, bind_draft_head, full_head
from ninfer.ops import Purpose, uniform

TOP_K = 5


class Selector:
    """A bound selector with both heads, and the slow walk beside it."""

    def __init__(self) -> None:
        config = small_config()
        assert config.dflash2 and config.dflash2.selector_top_k == TOP_K
        self.objects, recipe = Objects(config), recipe_of(config)
        for name in ("predecessor_codebook", "successor_codebook"):
            # Edges must outweigh logits often enough to matter.
            self.objects.tensors[f"dflash2/candidate_selector/{name}"] *= 3
        self.weights = bind_dflash2(self.objects, config, recipe).selector
        table = self.objects.tensors["text/output_head"]
        table[ADDRESSABLE:] *= 100
        small_ids = self.objects.tensors["text/draft_head_token_ids"].tolist()
        self.heads = {
            "full": (full_head(table, ADDRESSABLE), table, list(range(ADDRESSABLE))),
            "indexed": (
                bind_draft_head(self.objects, config, recipe),
                self.objects.tensors["text/draft_head"],
                small_ids,
            ),
        }

    def run(
        self,
        head: ProposalHead,
        hidden: Tensor,
        block: DraftBlock,
        heat: list[float],
        u: Tensor,
        top_k: int = TOP_K,
    ) -> SparseDrafts:
        temperature = torch.tensor(heat)
        return select_drafts(
            self.weights, head, hidden, block, top_k=top_k, temperature=temperature, u=u
        )


def block_of(anchors: list[int], counts: list[int]) -> DraftBlock:
    table = torch.zeros(len(anchors), 1, dtype=torch.int64)
    return draft_block(torch.tensor(anchors), [0] * len(anchors), counts, table, 85)


@pytest.mark.parametrize("name", ["full", "indexed"])
def test_walk_equals_the_formula(name: str) -> None:
    selector = Selector()
    head, rows, ids = selector.heads[name]
    anchors, counts, heat = [3, 40, 7, 79], [15, 1, 7, 4], [0.0, 0.7, 1.5, 1.0]
    hidden, u = torch.randn(27, HIDDEN, dtype=torch.float64), torch.rand(27)
    got = selector.run(head, hidden, block_of(anchors, counts), heat, u)
    start, moved = 0, 0
    for anchor, count, temperature in zip(anchors, counts, heat, strict=True):
        stop = start + count
        want = formulas.selected(
            selector.objects.named(),
            rows.numpy(),
            ids,
            hidden[start:stop].numpy(),
            anchor,
            TOP_K,
            temperature,
            u[start:stop].tolist(),
        )
        assert got.tokens[start:stop].tolist() == [token for token, _, _ in want]
        assert got.ids[start:stop].tolist() == [candidates for _, candidates, _ in want]
        chances = torch.tensor([chances for _, _, chances in want])
        assert (got.probabilities[start:stop] - chances).abs().max() < 1e-6
        moved += sum(token != candidates[0] for token, candidates, _ in want)
        start = stop
    assert moved > 5  # the best logit alone would not do
    assert got.probabilities.dtype is torch.float32
    assert (got.probabilities.sum(-1) - 1).abs().max() < 1e-6


def test_drafts_come_from_the_stated_distribution() -> None:
    """One row under a grid of u: each candidate is drawn as often as its probability says."""
    selector = Selector()
    head, _, _ = selector.heads["full"]
    count = 2000
    hidden = torch.randn(1, HIDDEN, dtype=torch.float64).expand(count, -1).contiguous()
    u = (torch.arange(count) + 0.5) / count
    got = selector.run(head, hidden, block_of([3] * count, [1] * count), [1.0] * count, u)
    for candidate, chance in zip(got.ids[0], got.probabilities[0], strict=True):
        share = float((got.tokens == candidate).float().mean())
        assert share == pytest.approx(float(chance), abs=1.5 / count)


def test_greedy_takes_the_higher_ranked_of_equal_edges() -> None:
    selector = Selector()
    head, table, _ = selector.heads["full"]
    table.fill_(1.0)
    selector.weights.successors.zero_()
    hidden = torch.ones(3, HIDDEN, dtype=torch.float64)
    got = selector.run(head, hidden, block_of([3], [3]), [0.0], torch.full((3,), 0.99))
    assert got.ids.tolist() == [[0, 1, 2, 3, 4]] * 3
    assert got.tokens.tolist() == [0, 0, 0]
    assert got.probabilities.tolist() == [[1.0, 0.0, 0.0, 0.0, 0.0]] * 3


def test_each_draft_depends_on_the_one_before() -> None:
    selector = Selector()
    head, _, _ = selector.heads["full"]
    hidden, u = torch.randn(12, HIDDEN, dtype=torch.float64), torch.rand(12)
    results = [
        selector.run(head, hidden, block_of([anchor], [12]), [1.0], u).probabilities
        for anchor in (3, 9)
    ]
    assert not torch.equal(results[0][0], results[1][0])
    changed = u.clone()
    changed[4] = 1 - changed[4]
    again = selector.run(head, hidden, block_of([3], [12]), [1.0], changed)
    assert torch.equal(again.probabilities[:5], results[0][:5])
    assert not torch.equal(again.probabilities[5], results[0][5])


def test_a_sequence_drafts_the_same_alone_and_in_company() -> None:
    selector = Selector()
    head, _, _ = selector.heads["indexed"]
    hidden, u = torch.randn(9, HIDDEN, dtype=torch.float64), torch.rand(9)
    both = selector.run(head, hidden, block_of([3, 8], [6, 3]), [0.8, 1.2], u)
    alone = selector.run(head, hidden[6:], block_of([8], [3]), [1.2], u[6:])
    assert both.tokens[6:].tolist() == alone.tokens.tolist()
    assert (both.probabilities[6:] - alone.probabilities).abs().max() < 1e-6


def test_more_candidates_than_head_rows() -> None:
    selector = Selector()
    head, _, ids = selector.heads["indexed"]
    hidden = torch.randn(2, HIDDEN, dtype=torch.float64)
    got = selector.run(head, hidden, block_of([3], [2]), [1.0], torch.rand(2), top_k=16_000)
    assert sorted(got.ids[0].tolist()) == sorted(ids)


def test_rows_that_cannot_be_used_still_give_ids() -> None:
    """A broken row is found by the target's own check; the draft must only be a legal id."""
    selector = Selector()
    head, _, _ = selector.heads["full"]
    hidden = torch.full((2, HIDDEN), torch.nan, dtype=torch.float64)
    for heat in (0.0, 1.0):
        got = selector.run(head, hidden, block_of([3], [2]), [heat], torch.rand(2))
        assert all(0 <= token < ADDRESSABLE for token in got.tokens.tolist())


def test_proposals_have_random_numbers_of_their_own() -> None:
    drawn = {uniform(1, 30, purpose) for purpose in Purpose}
    assert len(drawn) == len(Purpose)
