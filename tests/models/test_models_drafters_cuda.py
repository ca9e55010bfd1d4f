"""Drafters on a card against the same drafters on the CPU."""

from dataclasses import replace

import pytest
import torch
from drafter_scene import (
    ADDRESSABLE,
    HIDDEN,
    Objects,
    Pages,
    empty_caches,
    recipe_of,
    small_config,
)
from torch import Tensor

from ninfer.models.forward_batch import ForwardBatch, MediaRows
from ninfer.models.qwen3_6 import (
    ContextRows,
    TextWeights,
    bind_dflash,
    bind_dflash2,
    bind_draft_head,
    bind_mtp,
    block_forward,
    draft_block,
    extend_context,
    full_head,
    greedy_drafts,
    mtp_forward,
    select_drafts,
    shifted_batch,
)
from ninfer.models.qwen3_6.block_weights import block_cache_spec
from ninfer.models.qwen3_6.mtp import mtp_cache_spec
from ninfer.ops import PagedKV, RaggedRows

pytestmark = pytest.mark.gpu


def source_on(device: str):
    objects = Objects(small_config(moe=True))
    return lambda name: objects(name).to(device)


def caches_on(device: str, caches: list[PagedKV]) -> list[PagedKV]:
    return [
        replace(cache, keys=cache.keys.to(device), values=cache.values.to(device))
        for cache in caches
    ]


def rows_on(device: str, rows: RaggedRows) -> RaggedRows:
    parts = (rows.offsets, rows.kv_lengths, rows.page_table, rows.state_slots)
    return RaggedRows(*(part.to(device) for part in parts))


def mtp_drafts(device: str) -> tuple[Tensor, Tensor]:
    config, source = small_config(moe=True), source_on(device)
    embedding = source("text/token_embedding")
    target = TextWeights(embedding, (), source("text/final_norm"), source("text/output_head"))
    pages = Pages.of(2, 8)
    slots = pages.slots(0, 0, 5) + pages.slots(1, 0, 3)
    pictures = MediaRows(
        torch.tensor([1, 2], device=device),
        torch.randn(2, HIDDEN, dtype=torch.float64).to(device),
    )
    batch = ForwardBatch(
        torch.randint(0, ADDRESSABLE, (8,)).to(device),
        torch.randint(0, 900, (3, 8)).to(device),
        rows_on(device, pages.rows([(0, 5), (0, 3)])),
        torch.tensor(slots, device=device),
        torch.tensor([], dtype=torch.int64, device=device),
        pictures,
    )
    shifted = shifted_batch(batch, torch.tensor([4, 5], device=device))
    hidden = torch.randn(8, HIDDEN, dtype=torch.float64).to(device)
    (cache,) = caches_on(device, empty_caches(mtp_cache_spec(config.text), pages.count))
    weights = bind_mtp(source, config, recipe_of(config))
    got = mtp_forward(weights, target, config.text, shifted, hidden, cache)
    head = bind_draft_head(source, config, recipe_of(config))
    return got, greedy_drafts(head, got)


def block_drafts(device: str, kind: str) -> tuple[Tensor, Tensor]:
    model, source = small_config(moe=True), source_on(device)
    if kind == "dflash":
        config, drafter = model.dflash, bind_dflash(source, model, recipe_of(model))
    else:
        bound = bind_dflash2(source, model, recipe_of(model))
        config, drafter = model.dflash2, bound.drafter
    assert config is not None
    pages = Pages.of(2, 12)
    slots = torch.tensor(pages.slots(0, 0, 12) + pages.slots(1, 0, 5), device=device)
    positions = torch.tensor([*range(12), *range(5)], device=device)
    taps = [torch.randn(17, HIDDEN, dtype=torch.float64).to(device) for _ in range(3)]
    caches = caches_on(device, empty_caches(block_cache_spec(config), pages.count))
    extend_context(drafter, config, taps, ContextRows(positions, slots), caches)
    anchors, table = torch.tensor([3, 9], device=device), pages.table.to(device)
    block = draft_block(anchors, [12, 5], [7, 3], table, config.mask_id)
    embedding = source("text/token_embedding")
    hidden = block_forward(drafter, config, embedding, block, caches, dtype=torch.float64)
    head = full_head(source("text/output_head"), ADDRESSABLE)
    if kind == "dflash":
        return hidden, greedy_drafts(head, hidden)
    drafts = select_drafts(
        bound.selector,
        head,
        hidden,
        block,
        top_k=5,
        temperature=torch.tensor([0.0, 1.0], device=device),
        u=torch.rand(10).to(device),
    )
    return hidden, drafts.tokens


def both(make) -> None:
    torch.manual_seed(5)
    hidden, drafts = make("cpu")
    torch.manual_seed(5)
    on_card, card_drafts = make("cuda")
    assert on_card.is_cuda and card_drafts.is_cuda
    assert (on_card.cpu() - hidden).abs().max() < 1e-6
    assert card_drafts.tolist() == drafts.tolist()


def test_mtp() -> None:
    both(mtp_drafts)


@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
def test_block_drafters(kind: str) -> None:
    both(lambda device: block_drafts(device, kind))
