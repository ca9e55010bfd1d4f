"""Block drafters: drafts as the model's functions give them, whatever was rejected before."""

import random
from dataclasses import replace

import pytest
import torch
from spec_scene import PAGES, Model, Pool, Step, prefill, prompt_of, run_pass, states, verify

from ninfer import ops
from ninfer.models.qwen3_6 import (
    ContextRows,
    DraftBlock,
    bind_dflash,
    bind_dflash2,
    block_forward,
    draft_block,
    extend_context,
    full_head,
    greedy_drafts,
    select_drafts,
)
from ninfer.request import MediaRun
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative import BlockProposer, best_tokens, drafter_caches, walk

WIDEST = 15
_LOUD = 40.0
_SHARP = 20.0


def own_number(sequence: Sequence, ahead: int) -> float:
    """A stand-in for the target's uniform number, by seed and place."""
    seed = sequence.sampling.seed * 10_007 + len(sequence.tokens) + ahead
    return random.Random(seed).random()


class Scene:
    """A model with a block drafter, and proposers on fresh caches."""

    def __init__(self, kind: str) -> None:
        like, drafter = {
            "dflash": ("qwen3.6-35b-a3b", None),
            "dflash2": ("qwen3.8-27b", "dflash2"),
        }[kind]
        self.kind = kind
        self.model = Model(like, drafter)
        config, recipe = self.model.config, self.model.recipe
        self.head = full_head(self.model.text.head, config.text.addressable)
        if kind == "dflash":
            self.sizes = config.dflash
            self.weights = bind_dflash(self.model.source, config, recipe)
            self.choose = best_tokens(self.head)
        else:
            self.sizes = config.dflash2
            bound = bind_dflash2(self.model.source, config, recipe)
            self.weights, self.selector = bound.drafter, bound.selector
            self.choose = walk(self.selector, self.head, self.sizes.selector_top_k, own_number)

        # Random weights read little of the context, and the masks' embedding drowns that.
        for norm in (self.weights.context_norm, self.weights.final_norm):
            norm.add_(1)
        for layer in self.weights.layers:
            layer.input_norm.add_(1)
            layer.attention.query_norm.mul_(_SHARP)
            layer.attention.output.mul_(_LOUD)

    def proposer(self) -> BlockProposer:
        return BlockProposer(
            self.weights,
            self.sizes,
            self.model.text.embedding,
            drafter_caches(self.kind, self.model.config, self.model.runtime),
            self.choose,
            dtype=torch.float32,
        )

    def fresh(self, sequence: Sequence, count: int) -> list[int]:
        """Drafts behind the same tokens after one prefill of all of them."""
        proposer = self.proposer()
        same = Pool(seed=99).sequence(sequence.tokens[:-1], 1)
        same.sampling = sequence.sampling
        prefill(self.model, proposer, same, sequence.tokens[-1])
        return proposer.propose([same], [count])[0]

    def hidden(self, sequence: Sequence, count: int) -> torch.Tensor:
        """States of the masks by the model's functions on the whole context."""
        caches = drafter_caches(self.kind, self.model.config, self.model.runtime)
        length = len(sequence.tokens) - 1
        width = self.model.config.text.hidden
        taps = [
            states(sequence.tokens, 0, length, width, layer + 1)
            for layer in self.sizes.target_layers
        ]
        places = torch.arange(length)
        extend_context(self.weights, self.sizes, taps, ContextRows(places, places), caches)
        block = self.block(sequence, count)
        embedding = self.model.text.embedding
        args = (self.weights, self.sizes, embedding, block, caches)
        return block_forward(*args, dtype=torch.float32)

    def block(self, sequence: Sequence, count: int) -> DraftBlock:
        anchor, table = torch.tensor(sequence.tokens[-1:]), torch.arange(PAGES).unsqueeze(0)
        return draft_block(anchor, [sequence.cached], [count], table, self.sizes.mask_id)

    def head_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return ops.linear(hidden, self.head.weight)

    def by_definition(self, sequence: Sequence, count: int) -> list[int]:
        """Drafts by the model's functions, for one sequence."""
        hidden = self.hidden(sequence, count)
        if self.kind == "dflash":
            return greedy_drafts(self.head, hidden).tolist()
        u = [own_number(sequence, ahead) for ahead in range(count)]
        return select_drafts(
            self.selector,
            self.head,
            hidden,
            self.block(sequence, count),
            top_k=self.sizes.selector_top_k,
            temperature=torch.tensor([sequence.sampling.temperature]),
            u=torch.tensor(u, dtype=torch.float64),
        ).tokens.tolist()


@pytest.fixture(scope="module", params=["dflash", "dflash2"])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


@pytest.mark.parametrize("heat", [0.0, 1.5])
@pytest.mark.parametrize("count", [1, 2, 7, WIDEST])
def test_drafts_follow_the_definition(scene: Scene, count: int, heat: float) -> None:
    proposer = scene.proposer()
    sequence = Pool().sequence(prompt_of(70), 20, temperature=heat, seed=6)
    prefill(scene.model, proposer, sequence, 11)
    (drafts,) = proposer.propose([sequence], [count])
    assert drafts == scene.by_definition(sequence, count)
    assert len(drafts) == count


def test_any_history_drafts_as_a_fresh_prefill_does(scene: Scene) -> None:
    rng, proposer, pool = random.Random(4), scene.proposer(), Pool()
    sequences = [
        pool.sequence(prompt_of(n, n), 150, temperature=heat, seed=n)
        for n, heat in ((60, 0.0), (9, 1.0), (130, 0.7))
    ]
    for n, sequence in enumerate(sequences):
        prefill(scene.model, proposer, sequence, n, cut=n * 4)
    seen = set()
    for _ in range(10):
        verify(scene.model, proposer, sequences, rng, WIDEST)
        together = proposer.propose(sequences, [15, 2, 7])
        for sequence, drafts in zip(sequences, together, strict=True):
            assert drafts == scene.fresh(sequence, len(drafts))
            seen.add(tuple(drafts))
    assert [len(d) for d in together] == [15, 2, 7]
    assert len(seen) > 10


def test_a_sequence_without_room_is_left_out(scene: Scene) -> None:
    proposer, pool = scene.proposer(), Pool()
    one, two = pool.sequence(prompt_of(30, 1), 40), pool.sequence(prompt_of(80, 2), 40)
    for sequence in (one, two):
        prefill(scene.model, proposer, sequence, 5)
    drafts = proposer.propose([one, two], [0, 4])
    assert drafts == [[], scene.fresh(two, 4)]
    assert proposer.propose([one], [0]) == [[]]
    proposer.release(one)
    assert proposer.propose([two], [4]) == drafts[1:]


def test_context_positions_are_plain_indices_behind_media(scene: Scene) -> None:
    proposer, pool = scene.proposer(), Pool()
    sequence = pool.sequence(prompt_of(90), 20, [MediaRun(20, (1, 2, 3), 0, 0)])
    prefill(scene.model, proposer, sequence, 7, cut=22)
    (drafts,) = proposer.propose([sequence], [7])
    assert drafts == scene.by_definition(sequence, 7)


def test_prefill_and_decode_pieces_share_a_pass(scene: Scene) -> None:
    proposer, pool = scene.proposer(), Pool()
    one, two = pool.sequence(prompt_of(30, 1), 40), pool.sequence(prompt_of(80, 2), 40)
    prefill(scene.model, proposer, one, 5)
    run_pass(scene.model, proposer, [Step(two, 64), Step(one, 1, [400, 401], [400, 77])])
    run_pass(scene.model, proposer, [Step(one, 1, chosen=[8]), Step(two, 16, chosen=[9])])
    assert proposer.propose([one, two], [2, 4]) == [scene.fresh(one, 2), scene.fresh(two, 4)]


def test_the_walk_uses_the_numbers_of_the_places_it_drafts() -> None:
    """The target will use the same number there, so equal laws give equal tokens."""
    scene, asked = Scene("dflash2"), []

    def spy(sequence: Sequence, ahead: int) -> float:
        asked.append((sequence.prompt_length, ahead))
        return own_number(sequence, ahead)

    top_k = scene.sizes.selector_top_k
    scene.choose = walk(scene.selector, scene.head, top_k, spy)
    proposer, pool = scene.proposer(), Pool()
    pair = [pool.sequence(prompt_of(n), 20, temperature=1.0, seed=n) for n in (20, 30)]
    for sequence in pair:
        prefill(scene.model, proposer, sequence, 5)
    drafts = proposer.propose(pair, [2, 3])
    assert asked == [(20, 0), (20, 1), (30, 0), (30, 1), (30, 2)]
    by_seed = set()
    for seed in range(12):
        pair[1].sampling = Pool().sequence([1], 1, temperature=1.0, seed=seed).sampling
        by_seed.add(tuple(proposer.propose(pair, [2, 3])[1]))
    assert len(by_seed) > 3
    assert len(drafts[1]) == 3


def test_where_both_laws_agree_every_sampled_draft_is_right() -> None:
    """Without edges the drafter's law is that of its logits; a target with those draws the same."""
    scene = Scene("dflash2")
    scene.selector.predecessors.zero_()
    proposer, pool = scene.proposer(), Pool()
    sequence = pool.sequence(prompt_of(30), 20, temperature=1.3)
    prefill(scene.model, proposer, sequence, 5)
    hidden = scene.hidden(sequence, 7)
    logits = scene.head_logits(hidden)
    seen = set()
    for seed in range(30):
        sequence.sampling = replace(sequence.sampling, seed=seed)
        (drafts,) = proposer.propose([sequence], [7])
        settings = {
            "temperature": torch.full((7,), 1.3),
            "top_k": torch.full((7,), scene.sizes.selector_top_k),
            "top_p": torch.ones(7),
            "min_p": torch.zeros(7),
        }
        u = torch.tensor([own_number(sequence, ahead) for ahead in range(7)], dtype=torch.float64)
        limit = scene.model.config.text.addressable
        assert drafts == ops.sample(logits, limit=limit, **settings, u=u).tolist()
        seen.add(tuple(drafts))
    assert len(seen) > 10
