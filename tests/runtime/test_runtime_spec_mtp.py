"""MTP drafts: the chain as the model defines it, and independence from everything rejected."""

import random

import pytest
import torch
from spec_scene import Model, Pool, Step, prefill, prompt_of, run_pass, states, verify
from torch import Tensor

from ninfer.models.forward_batch import ForwardBatch
from ninfer.models.qwen3_6 import (
    ProposalHead,
    bind_draft_head,
    bind_mtp,
    full_head,
    greedy_drafts,
    mtp_forward,
)
from ninfer.ops.tensors import RaggedRows
from ninfer.request import MediaRun
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative import MtpProposer, drafter_caches

WIDEST = 5


class Scene:
    """A model with MTP, and proposers on fresh caches."""

    def __init__(self, like: str, head: str) -> None:
        self.model = Model(like)
        config, recipe = self.model.config, self.model.recipe
        self.weights = bind_mtp(self.model.source, config, recipe)
        self.head: ProposalHead = (
            bind_draft_head(self.model.source, config, recipe)
            if head == "indexed"
            else full_head(self.model.text.head, config.text.addressable)
        )

    def proposer(self) -> MtpProposer:
        (cache,) = drafter_caches("mtp", self.model.config, self.model.runtime)
        text = self.model.config.text
        return MtpProposer(self.weights, self.model.text, text, self.head, cache)

    def fresh(self, sequence: Sequence, count: int) -> list[int]:
        """Drafts behind the same tokens after one prefill of all of them."""
        proposer, pool = self.proposer(), Pool(seed=99)
        same = pool.sequence(sequence.tokens[:-1], WIDEST)
        same.media = sequence.media
        prefill(self.model, proposer, same, sequence.tokens[-1])
        return proposer.propose([same], [count])[0]

    def by_definition(self, tokens: list[int], count: int) -> list[int]:
        """The chain with the whole sequence run again for each draft, without any cache before."""
        hidden = states(tokens, 0, len(tokens) - 1, self.model.config.text.hidden, 0)
        drafts: list[int] = []
        for _ in range(count):
            out = self._whole([*tokens[1:], *drafts], hidden)
            drafts += greedy_drafts(self.head, out[-1:]).tolist()
            hidden = torch.cat([hidden, out[-1:]])
        return drafts

    def _whole(self, consumed: list[int], hidden: Tensor) -> Tensor:
        (cache,) = drafter_caches("mtp", self.model.config, self.model.runtime)
        count = len(consumed)
        rows = RaggedRows(
            torch.tensor([0, count]),
            torch.tensor([count]),
            torch.arange(cache.keys.shape[0]).unsqueeze(0),
            torch.tensor([0]),
        )
        places = torch.arange(count)
        batch = ForwardBatch(torch.tensor(consumed), places.expand(3, -1), rows, places, places[:0])
        text = self.model.config.text
        return mtp_forward(self.weights, self.model.text, text, batch, hidden, cache)


@pytest.fixture(
    scope="module",
    params=[("qwen3.6-27b", "full"), ("qwen3.6-27b", "indexed"), ("qwen3.6-35b-a3b", "full")],
    ids=["dense-full", "dense-indexed", "moe-full"],
)
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(*request.param)


@pytest.mark.parametrize("count", range(1, WIDEST + 1))
def test_drafts_follow_the_definition(scene: Scene, count: int) -> None:
    proposer, sequence = scene.proposer(), Pool().sequence(prompt_of(70), 20)
    prefill(scene.model, proposer, sequence, 11)
    (drafts,) = proposer.propose([sequence], [count])
    assert drafts == scene.by_definition(sequence.tokens, count)
    assert len(drafts) == count


def test_any_history_drafts_as_a_fresh_prefill_does(scene: Scene) -> None:
    rng, proposer, pool = random.Random(4), scene.proposer(), Pool()
    sequences = [pool.sequence(prompt_of(n, n), 120) for n in (60, 9, 130)]
    for n, sequence in enumerate(sequences):
        prefill(scene.model, proposer, sequence, n)
    seen = set()
    for _ in range(14):
        verify(scene.model, proposer, sequences, rng, WIDEST)
        together = proposer.propose(sequences, [5, 2, 3])
        for sequence, drafts in zip(sequences, together, strict=True):
            assert drafts == scene.fresh(sequence, len(drafts))
            seen.update(drafts)
    assert [len(d) for d in together] == [5, 2, 3]
    assert len(seen) > 8


def test_the_state_behind_the_drafts_has_the_same_bits(scene: Scene) -> None:
    rng, proposer, pool = random.Random(5), scene.proposer(), Pool()
    sequence = pool.sequence(prompt_of(50), 120)
    prefill(scene.model, proposer, sequence, 3)
    for _ in range(12):
        verify(scene.model, proposer, [sequence], rng, WIDEST)
    again = scene.proposer()
    same = Pool(1).sequence(sequence.tokens[:-1], 4)
    prefill(scene.model, again, same, sequence.tokens[-1])
    assert torch.equal(proposer._tails[sequence].hidden, again._tails[same].hidden)
    for p in range(sequence.cached):
        mine, other = (
            q._cache.keys[s.pages[p // 64], p % 64]
            for q, s in ((proposer, sequence), (again, same))
        )
        assert torch.equal(mine, other)


@pytest.mark.parametrize("cut", [10, 20, 21, 24, 25, 64])
def test_media_in_the_prompt_move_with_their_tokens(scene: Scene, cut: int) -> None:
    """Placeholders stand at 20..25, so some cuts lie inside them and in front of them."""
    runs = [MediaRun(20, (1, 2, 3), 0, 0)]
    proposer, pool = scene.proposer(), Pool()
    sequence = pool.sequence(prompt_of(90), 20, runs)
    prefill(scene.model, proposer, sequence, 7, cut)
    drafts = proposer.propose([sequence], [3])[0]
    assert drafts == scene.fresh(sequence, 3)
    tail = proposer._tails[sequence].hidden
    plain = scene.proposer()
    text = pool.sequence(prompt_of(90), 20)
    prefill(scene.model, plain, text, 7)
    assert not torch.equal(tail, plain._tails[text].hidden)
    again = scene.proposer()
    whole = pool.sequence(prompt_of(90), 20, runs)
    prefill(scene.model, again, whole, 7)
    assert torch.equal(tail, again._tails[whole].hidden)


def test_prefill_and_decode_pieces_share_a_pass(scene: Scene) -> None:
    proposer, pool = scene.proposer(), Pool()
    one, two = pool.sequence(prompt_of(30, 1), 40), pool.sequence(prompt_of(80, 2), 40)
    prefill(scene.model, proposer, one, 5)
    drafts = [400, 401, 402]
    steps = [Step(two, 64), Step(one, 1, drafts, [400, 77])]
    run_pass(scene.model, proposer, steps)
    # The second prompt is not through yet: nothing can be drafted for it.
    assert proposer.propose([one, two], [3, 3]) == [scene.fresh(one, 3), []]
    run_pass(scene.model, proposer, [Step(one, 1, chosen=[8]), Step(two, 16, chosen=[9])])
    assert proposer.propose([one, two], [2, 4]) == [scene.fresh(one, 2), scene.fresh(two, 4)]


def test_nothing_is_drafted_from_a_state_of_other_tokens(scene: Scene) -> None:
    proposer, sequence = scene.proposer(), Pool().sequence(prompt_of(20), 20)
    assert proposer.propose([sequence], [3]) == [[]]
    prefill(scene.model, proposer, sequence, 5)
    assert len(proposer.propose([sequence], [3])[0]) == 3
    assert proposer.propose([sequence], [0]) == [[]]
    sequence.tokens[-1] = 6
    assert proposer.propose([sequence], [3]) == [[]]
    sequence.tokens[-1] = 5
    sequence.tokens.append(7)
    assert proposer.propose([sequence], [3]) == [[]]
    sequence.tokens.pop()
    proposer.release(sequence)
    proposer.release(sequence)
    assert proposer.propose([sequence], [3]) == [[]]


def test_states_that_are_not_finite_give_no_drafts() -> None:
    scene = Scene("qwen3.6-27b", "full")
    proposer, pool = scene.proposer(), Pool()
    good, bad = pool.sequence(prompt_of(20), 20), pool.sequence(prompt_of(20), 20)
    for sequence in (good, bad):
        prefill(scene.model, proposer, sequence, 5)
    with torch.inference_mode():
        proposer._tails[bad].hidden.fill_(torch.nan)
    assert proposer.propose([good, bad], [3, 3]) == [scene.fresh(good, 3), []]
