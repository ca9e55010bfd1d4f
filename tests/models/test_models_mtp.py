"""The MTP layer and its heads against a second implementation, its alignment, and its rewinding."""

from dataclasses import replace

import drafter_formulas as formulas
import numpy as np
import pytest
import torch
from drafter_scene import (
    ADDRESSABLE,
    HIDDEN,
    Objects,
    Pages,
    empty_caches,
    empty_states,
    recipe_of,
    small_config,
)
from torch import Tensor

from ninfer.models.forward_batch import Caches, ForwardBatch, MediaRows, cache_spec
from ninfer.models.qwen3_6 import TextWeights, bind_text, decode
from ninfer.models.qwen3_6.inventory import inventory
from ninfer.models.qwen3_6.mtp import bind_mtp, mtp_cache_spec, mtp_forward, shifted_batch
from ninfer.models.qwen3_6.proposal import bind_draft_head, full_head, greedy_drafts

HEADS = formulas.Heads(query=4, kv=2, dim=16, rotary=8)
LENGTH = 24


class Drafter:
    """A bound MTP layer, its cache for two sequences, and the slow formula beside it."""

    def __init__(self, moe: bool) -> None:
        self.config = small_config(moe=moe)
        self.objects = Objects(self.config)
        self.weights = bind_mtp(self.objects, self.config, recipe_of(self.config))
        tensors = self.objects.tensors
        self.embedding = tensors["text/token_embedding"]
        # MTP reads the embedding alone.
        self.target = TextWeights(
            self.embedding, (), tensors["text/final_norm"], tensors["text/output_head"]
        )
        self.pages = Pages.of(2, LENGTH)
        self.cache = empty_caches(mtp_cache_spec(self.config.text), self.pages.count)[0]
        self.top_k = self.config.text.moe.top_k if self.config.text.moe else 0

    def batch(
        self, spans: list[tuple[int, int]], tokens: list[list[int]], axes: list[Tensor]
    ) -> ForwardBatch:
        """Rows start..stop - 1 of each sequence from whole token lists and axes [3, length]."""
        slots = [s for b, span in enumerate(spans) for s in self.pages.slots(b, *span)]
        return ForwardBatch(
            tokens=torch.tensor([t for b, (i, j) in enumerate(spans) for t in tokens[b][i:j]]),
            positions=torch.cat([axes[b][:, i:j] for b, (i, j) in enumerate(spans)], dim=1),
            rows=self.pages.rows(spans),
            kv_slots=torch.tensor(slots, dtype=torch.int64),
            logit_rows=torch.tensor([], dtype=torch.int64),
        )

    def run(self, batch: ForwardBatch, hidden: Tensor) -> Tensor:
        text = self.config.text
        return mtp_forward(self.weights, self.target, text, batch, hidden, self.cache)

    def slow(self, tokens: list[int], axes: Tensor, hidden: Tensor) -> Tensor:
        positions = [tuple(column) for column in axes.T.tolist()]
        named = self.objects.named()
        table = self.embedding.numpy()
        got = formulas.mtp(named, HEADS, table, tokens, positions, hidden.numpy(), top_k=self.top_k)
        return torch.from_numpy(got)


@pytest.fixture(params=["dense", "moe"])
def drafter(request: pytest.FixtureRequest) -> Drafter:
    return Drafter(request.param == "moe")


def inputs(lengths: list[int]) -> tuple[list[list[int]], list[Tensor], list[Tensor]]:
    """Tokens, positions whose three axes differ, and hidden states of each sequence."""
    tokens = [torch.randint(0, ADDRESSABLE, (n,)).tolist() for n in lengths]
    axes = [torch.randint(0, 5000, (3, n)) for n in lengths]
    return tokens, axes, [torch.randn(n, HIDDEN, dtype=torch.float64) for n in lengths]


def text_axes(length: int) -> Tensor:
    return torch.arange(length).expand(3, -1)


def test_two_sequences_equal_the_formula(drafter: Drafter) -> None:
    tokens, axes, hidden = inputs([9, 5])
    batch = drafter.batch([(0, 9), (0, 5)], tokens, axes)
    got = drafter.run(batch, torch.cat(hidden)).split([9, 5])
    for b in range(2):
        assert (got[b] - drafter.slow(tokens[b], axes[b], hidden[b])).abs().max() < 1e-9


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 8])
def test_chunks_equal_one_shot(drafter: Drafter, cut: int) -> None:
    tokens, axes, hidden = inputs([11, 11])
    whole = drafter.run(drafter.batch([(0, 11)] * 2, tokens, axes), torch.cat(hidden))
    keys = drafter.cache.keys.clone()
    drafter.cache.keys.fill_(torch.nan)
    parts = []
    for start in range(0, 11, cut):
        stop = min(start + cut, 11)
        batch = drafter.batch([(start, stop)] * 2, tokens, axes)
        part = drafter.run(batch, torch.cat([h[start:stop] for h in hidden]))
        parts.append(part.unflatten(0, (2, -1)))
    got = torch.cat(parts, dim=1).flatten(0, 1)
    assert (got - whole).abs().max() < 1e-9
    assert torch.allclose(drafter.cache.keys, keys, rtol=0, atol=1e-6, equal_nan=True)


def test_prefill_fuses_each_state_with_the_next_token(drafter: Drafter) -> None:
    """Position t consumes token x_(t + 1) and the target's h_t, over a real target pass."""
    text = drafter.config.text
    prompt, chosen = torch.randint(0, ADDRESSABLE, (10,)).tolist(), 17
    spans, axes = [(0, 10)], [text_axes(10)]
    pages = Pages(drafter.pages.table[:1])
    drafter.pages = pages
    target = drafter.batch(spans, [prompt], axes)
    hidden = target_states(drafter, target)
    shifted = shifted_batch(target, torch.tensor([chosen]))
    assert shifted.tokens.tolist() == [*prompt[1:], chosen]
    got = drafter.run(shifted, hidden)
    assert (got - drafter.slow([*prompt[1:], chosen], axes[0], hidden)).abs().max() < 1e-9
    assert hidden.shape == (10, text.hidden)


def target_states(drafter: Drafter, batch: ForwardBatch) -> Tensor:
    config = drafter.config
    spec = cache_spec(config)
    weights = bind_text(drafter.objects, config, recipe_of(config))
    attention = dict(zip(config.text.attention_layers, empty_caches(spec.kv, 99), strict=True))
    caches = Caches(attention, *empty_states(spec.state))
    hidden, _ = decode(weights, config.text, batch, caches, dtype=torch.float64)
    return hidden


def test_following_tokens_close_each_sequence() -> None:
    drafter = Drafter(False)
    tokens, axes, _ = inputs([4, 1])
    batch = drafter.batch([(0, 4), (0, 1)], tokens, axes)
    got = shifted_batch(batch, torch.tensor([7, 8])).tokens.tolist()
    assert got == [*tokens[0][1:], 7, 8]
    assert batch.tokens.tolist() == [*tokens[0], *tokens[1]]
    # A piece of a prompt is followed by the next piece's first token.
    piece = drafter.batch([(1, 3), (0, 1)], tokens, axes)
    following = torch.tensor([tokens[0][3], 8])
    assert shifted_batch(piece, following).tokens.tolist() == [*tokens[0][2:4], 8]


@pytest.mark.parametrize("cuts", [[9], [3, 6], [4, 5], [1] * 9, [7, 2]])
def test_media_embeddings_move_with_their_tokens(drafter: Drafter, cuts: list[int]) -> None:
    """Tokens 3..6 are placeholders; a piece takes the embeddings of the tokens after its rows."""
    tokens, axes, hidden = inputs([9])
    chosen, pictures = 17, torch.randn(4, HIDDEN, dtype=torch.float64)
    drafter.pages = Pages(drafter.pages.table[:1])
    parts, start = [], 0
    for cut in cuts:
        stop = start + cut
        batch = drafter.batch([(start, stop)], tokens, axes)
        inside = [p for p in range(start, stop) if 3 <= p < 7]
        at = torch.tensor([p - start for p in inside], dtype=torch.int64)
        batch = replace(batch, media=MediaRows(at, pictures[[p - 3 for p in inside]]))
        following = torch.tensor([tokens[0][stop] if stop < 9 else chosen])
        ahead = None
        if 3 <= stop < 7:
            ahead = MediaRows(torch.tensor([cut - 1]), pictures[stop - 3 : stop - 2])
        shifted = shifted_batch(batch, following, ahead)
        parts.append(drafter.run(shifted, hidden[0][start:stop]))
        start = stop
    # The formula reads the pictures as further rows of the table.
    count = drafter.embedding.shape[0]
    drafter.embedding = torch.cat([drafter.embedding, pictures])
    seen = [count + p - 3 if 3 <= p < 7 else tokens[0][p] for p in range(1, 9)]
    want = drafter.slow([*seen, chosen], axes[0], hidden[0])
    assert (torch.cat(parts) - want).abs().max() < 1e-9


def test_drafts_chain_and_rewind(drafter: Drafter) -> None:
    """Three drafts from a prefix; then the accepted part again, with the target's own states."""
    tokens, _, hidden = inputs([6, 6])
    axes = [text_axes(LENGTH)] * 2
    drafter.run(drafter.batch([(0, 6)] * 2, tokens, axes), torch.cat(hidden))
    head = full_head(drafter.objects.tensors["text/output_head"], ADDRESSABLE)
    drafted, states = [list(t) for t in tokens], [h.clone() for h in hidden]
    last = torch.stack([drafter.slow(tokens[b], axes[b], hidden[b])[-1] for b in range(2)])
    for step in range(6, 9):
        for b, token in enumerate(greedy_drafts(head, last).tolist()):
            drafted[b].append(token)
            states[b] = torch.cat([states[b], last[b : b + 1]])
        batch = drafter.batch([(step, step + 1)] * 2, drafted, axes)
        last = drafter.run(batch, last)
        for b in range(2):
            want = drafter.slow(drafted[b], axes[b], states[b])[-1]
            assert (last[b] - want).abs().max() < 1e-8
    real = [torch.cat([h, torch.randn(2, HIDDEN, dtype=torch.float64)]) for h in hidden]
    batch = drafter.batch([(6, 8)] * 2, drafted, axes)
    got = drafter.run(batch, torch.cat([r[6:] for r in real])).split([2, 2])
    for b in range(2):
        want = drafter.slow(drafted[b][:8], axes[b], real[b])[6:]
        assert (got[b] - want).abs().max() < 1e-9


def test_both_heads_give_the_best_known_token() -> None:
    objects = Objects(small_config())
    hidden = torch.randn(40, HIDDEN, dtype=torch.float64)
    table, ids = objects.tensors["text/output_head"], list(range(ADDRESSABLE))
    # Rows beyond the addressable ids would win every time.
    table[ADDRESSABLE:] *= 100
    small = objects.tensors["text/draft_head"]
    small_ids = objects.tensors["text/draft_head_token_ids"].tolist()
    config = small_config()
    full, indexed = (
        full_head(table, ADDRESSABLE),
        bind_draft_head(objects, config, recipe_of(config)),
    )
    for head, rows, tokens in ((full, table, ids), (indexed, small, small_ids)):
        got = greedy_drafts(head, hidden).tolist()
        slow = [formulas.best_ids(rows.numpy(), tokens, h.numpy(), 1)[0][1] for h in hidden]
        assert got == slow
    assert set(greedy_drafts(indexed, hidden).tolist()) <= set(small_ids)


def test_equal_logits_give_the_lowest_id() -> None:
    config = small_config()
    objects = Objects(config)
    ids = objects.tensors["text/draft_head_token_ids"].tolist()
    objects.tensors["text/draft_head"].fill_(1.0)
    # Whole numbers, whose sums are exact in any order.
    hidden = torch.randint(-9, 9, (3, HIDDEN)).double()
    got = greedy_drafts(bind_draft_head(objects, config, recipe_of(config)), hidden)
    assert got.tolist() == [min(ids)] * 3
    assert ids[0] != min(ids)


@pytest.mark.parametrize("moe", [False, True])
def test_binding_asks_for_each_object_once_and_for_no_other(moe: bool) -> None:
    config = small_config(moe=moe)
    objects = Objects(config)
    bind_mtp(objects, config, recipe_of(config))
    assert sorted(objects.asked) == sorted(objects.below("mtp/"))
    objects.asked.clear()
    bind_draft_head(objects, config, recipe_of(config))
    assert sorted(objects.asked) == sorted(objects.below("text/draft_head"))
    objects.asked.clear()
    bind_text(objects, config, recipe_of(config))
    drafting = ("mtp/", "dflash/", "dflash2/", "text/draft_head")
    assert not [name for name in objects.asked if name.startswith(drafting)]


def test_published_weights_run_in_bf16_near_float64() -> None:
    """The stored formats of an artifact, eight bits, with activations of a real run."""
    from ninfer.formats import numeric_format, quantise

    config = small_config(moe=True)
    objects, packed = Objects(config), Objects(config)
    for spec in inventory(config, recipe_of(config)):
        if spec.name.startswith("mtp/") and len(spec.shape) == 2:
            values = objects.tensors[spec.name].float()
            if numeric_format(spec.format).kind == "direct":
                packed.tensors[spec.name] = values.bfloat16()
                objects.tensors[spec.name] = values.bfloat16().double()
            else:
                packed.tensors[spec.name] = quantise(values, spec.format)
                decoded = packed.tensors[spec.name].dequantise(torch.float64)
                objects.tensors[spec.name] = decoded
    drafter = Drafter(True)
    drafter.objects, drafter.weights = objects, bind_mtp(packed, config, recipe_of(config))
    tokens, axes, hidden = inputs([9, 9])
    batch = drafter.batch([(0, 9)] * 2, tokens, axes)
    exact = drafter.run(batch, torch.cat(hidden))
    want = torch.cat([drafter.slow(tokens[b], axes[b], hidden[b]) for b in range(2)])
    assert (exact - want).abs().max() < 1e-9
    rounded = drafter.run(batch, torch.cat(hidden).bfloat16())
    assert rounded.dtype is torch.bfloat16
    assert float((rounded.double() - want).norm() / want.norm()) < 0.03
    assert np.isfinite(want.numpy()).all()
