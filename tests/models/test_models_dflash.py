"""DFlash and DFlash2 against a second implementation: windows, block lengths, context upkeep."""

from dataclasses import replace

import drafter_formulas as formulas
import pytest
import torch
from drafter_scene import (
    HIDDEN,
    Objects,
    Pages,
    empty_caches,
    empty_states,
    recipe_of,
    small_config,
)
from torch import Tensor

from ninfer.formats import quantise
from ninfer.models.config import Dflash2Config, DflashConfig
from ninfer.models.forward_batch import Caches, ForwardBatch, cache_spec
from ninfer.models.qwen3_6 import bind_text, decode
from ninfer.models.qwen3_6.block_drafter import (
    ContextRows,
    DraftBlock,
    block_forward,
    draft_block,
    extend_context,
)
from ninfer.models.qwen3_6.block_weights import block_cache_spec
from ninfer.models.qwen3_6.dflash import bind_dflash, dflash_windows
from ninfer.models.qwen3_6.dflash2 import bind_dflash2
from ninfer.models.qwen3_6.sizes import DFLASH2_27B, MOE_35B

HEADS = formulas.Heads(query=6, kv=2, dim=16, rotary=16)
WINDOW = 8
LENGTH = 48
TAPS = 3


class Drafter:
    """A bound block drafter with the context of two sequences, and the slow formula beside it."""

    def __init__(self, kind: str) -> None:
        model = self.model = small_config(window=WINDOW)
        self.kind = kind
        self.objects = Objects(model)
        self.config: DflashConfig | Dflash2Config
        if kind == "dflash":
            assert model.dflash
            self.config = model.dflash
            self.weights = bind_dflash(self.objects, model, recipe_of(model))
            self.windows = [WINDOW, WINDOW, None]
        else:
            assert model.dflash2
            self.config = model.dflash2
            self.weights = bind_dflash2(self.objects, model, recipe_of(model)).drafter
            self.windows = [WINDOW, WINDOW]
        self.embedding = self.objects.tensors["text/token_embedding"]
        self.pages = Pages.of(2, LENGTH)
        self.clear()

    def clear(self, form: str = "fp32") -> None:
        self.caches = empty_caches(block_cache_spec(self.config), self.pages.count, form)

    def extend(self, features: list[Tensor], spans: list[tuple[int, int]]) -> None:
        """Give rows start..stop - 1 of each sequence's features to the context."""
        rows = torch.cat([features[b][i:j] for b, (i, j) in enumerate(spans)])
        slots = [s for b, span in enumerate(spans) for s in self.pages.slots(b, *span)]
        where = ContextRows(
            torch.tensor([p for span in spans for p in range(*span)], dtype=torch.int64),
            torch.tensor(slots, dtype=torch.int64),
        )
        taps = rows.split(HIDDEN, dim=-1)
        extend_context(self.weights, self.config, taps, where, self.caches)

    def block(self, anchors: list[int], frontiers: list[int], counts: list[int]) -> DraftBlock:
        table = self.pages.table[: len(anchors)]
        return draft_block(torch.tensor(anchors), frontiers, counts, table, self.config.mask_id)

    def run(self, block: DraftBlock, dtype: torch.dtype = torch.float64) -> list[Tensor]:
        args = (self.weights, self.config, self.embedding, block, self.caches)
        return list(block_forward(*args, dtype=dtype).split(list(block.counts)))

    def slow(self, features: Tensor, anchor: int, count: int) -> Tensor:
        got = formulas.block_drafter(
            self.objects.named(),
            self.kind,
            HEADS,
            self.windows,
            self.embedding.numpy(),
            features.numpy(),
            [anchor] + [self.config.mask_id] * count,
            taps=2 if self.kind == "dflash2" else 0,
        )
        return torch.from_numpy(got)


@pytest.fixture(params=["dflash", "dflash2"])
def drafter(request: pytest.FixtureRequest) -> Drafter:
    return Drafter(request.param)


def features_of(*lengths: int) -> list[Tensor]:
    return [torch.randn(n, TAPS * HIDDEN, dtype=torch.float64) for n in lengths]


# The window of 8 holds 7 positions of context before the anchor.
@pytest.mark.parametrize("frontier", [0, 1, WINDOW - 2, WINDOW - 1, WINDOW, WINDOW + 1, 21])
@pytest.mark.parametrize("count", [1, WINDOW - 1, WINDOW])
def test_formula_at_window_borders(drafter: Drafter, frontier: int, count: int) -> None:
    features = features_of(frontier)
    drafter.extend(features, [(0, frontier)])
    (got,) = drafter.run(drafter.block([17], [frontier], [count]))
    assert (got - drafter.slow(features[0], 17, count)).abs().max() < 1e-9


@pytest.mark.parametrize("count", range(1, 16))
def test_every_block_length(drafter: Drafter, count: int) -> None:
    features = features_of(11)
    drafter.extend(features, [(0, 11)])
    (got,) = drafter.run(drafter.block([5], [11], [count]))
    assert got.shape == (count, HIDDEN)
    assert (got - drafter.slow(features[0], 5, count)).abs().max() < 1e-9


def test_sequences_of_one_block_do_not_see_each_other(drafter: Drafter) -> None:
    features = features_of(9, 14)
    drafter.extend(features, [(0, 9), (0, 14)])
    got = drafter.run(drafter.block([3, 60], [9, 14], [7, 2]))
    assert (got[0] - drafter.slow(features[0], 3, 7)).abs().max() < 1e-9
    assert (got[1] - drafter.slow(features[1], 60, 2)).abs().max() < 1e-9


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 16])
def test_chunked_context_upkeep_equals_one_shot(drafter: Drafter, cut: int) -> None:
    features = features_of(19, 19)
    drafter.extend(features, [(0, 19)] * 2)
    whole, block = drafter.caches, drafter.block([3, 4], [19, 19], [4, 4])
    want = drafter.run(block)
    drafter.clear()
    for start in range(0, 19, cut):
        drafter.extend(features, [(start, min(start + cut, 19))] * 2)
    for ours, theirs in zip(drafter.caches, whole, strict=True):
        for a, b in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
            assert torch.allclose(a, b, rtol=0, atol=1e-6, equal_nan=True)
    for a, b in zip(drafter.run(block), want, strict=True):
        assert (a - b).abs().max() < 1e-6


def test_drafting_leaves_the_context_as_it_is(drafter: Drafter) -> None:
    features = features_of(10)
    drafter.extend(features, [(0, 10)])
    before = [(cache.keys.clone(), cache.values.clone()) for cache in drafter.caches]
    first = drafter.run(drafter.block([3], [10], [5]))[0]
    second = drafter.run(drafter.block([3], [10], [5]))[0]
    assert torch.equal(first, second)
    for cache, (keys, values) in zip(drafter.caches, before, strict=True):
        assert torch.equal(cache.keys.nan_to_num(), keys.nan_to_num())
        assert torch.equal(cache.values.nan_to_num(), values.nan_to_num())


def test_only_layers_without_a_window_need_the_old_context(drafter: Drafter) -> None:
    features = features_of(30)
    drafter.extend(features, [(0, 30)])
    block = drafter.block([3], [30], [4])
    (want,) = drafter.run(block)
    for cache, window in zip(drafter.caches, drafter.windows, strict=True):
        if window is not None:
            for slot in drafter.pages.slots(0, 0, 30 - window + 1):
                cache.keys.flatten(0, 1)[slot] = 1e3
                cache.values.flatten(0, 1)[slot] = 1e3
    assert (drafter.run(block)[0] - want).abs().max() < 1e-12
    (newest,) = drafter.pages.slots(0, 30 - WINDOW + 1, 30 - WINDOW + 2)
    drafter.caches[0].values.flatten(0, 1)[newest] += 1
    assert (drafter.run(block)[0] - want).abs().max() > 1e-6


def test_taps_of_the_decoder_are_the_features(drafter: Drafter) -> None:
    """The residual after block l is what the final norm of a decoder cut after l would see."""
    model = small_config()
    weights = bind_text(drafter.objects, model, recipe_of(model))
    count = 9
    axes = torch.arange(count).expand(3, -1)
    batch = ForwardBatch(
        torch.randint(0, 80, (count,)),
        axes,
        Pages(drafter.pages.table[:1]).rows([(0, count)]),
        torch.tensor(drafter.pages.slots(0, 0, count)),
        torch.tensor([], dtype=torch.int64),
    )

    def states(layers: int, taps: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
        spec = cache_spec(model)
        attention = {3: empty_caches(spec.kv, drafter.pages.count)[0]}
        caches = Caches(attention, *empty_states(spec.state))
        cut = replace(weights, layers=weights.layers[:layers])
        return decode(cut, model.text, batch, caches, dtype=torch.float64, taps=taps)

    _, taps = states(4, drafter.config.target_layers)
    assert len(taps) == TAPS
    for layer, tap in zip(drafter.config.target_layers, taps, strict=True):
        final, _ = states(layer + 1, ())
        norm = drafter.objects.tensors["text/final_norm"].numpy()
        for row in range(count):
            want = formulas.rms(tap[row].numpy(), norm, 1.0)
            assert abs(final[row].numpy() - want).max() < 1e-9
    drafter.extend([torch.cat(taps, dim=-1)], [(0, count)])
    (got,) = drafter.run(drafter.block([3], [count], [4]))
    assert (got - drafter.slow(torch.cat(taps, dim=-1), 3, 4)).abs().max() < 1e-9


def test_positions_and_tokens_of_a_block() -> None:
    table = torch.zeros(3, 2, dtype=torch.int64)
    block = draft_block(torch.tensor([5, 6, 7]), [0, 9, 4], [2, 1, 3], table, 85)
    assert block.tokens.tolist() == [5, 85, 85, 6, 85, 7, 85, 85, 85]
    assert block.positions.tolist() == [0, 1, 2, 9, 10, 4, 5, 6, 7]
    assert block.rows.offsets.tolist() == [0, 3, 5, 9]
    assert block.rows.kv_lengths.tolist() == [3, 11, 8]
    assert block.mask_rows.tolist() == [1, 2, 4, 6, 7, 8]


def test_published_windows() -> None:
    assert MOE_35B.dflash is not None
    assert dflash_windows(MOE_35B.dflash) == (4096,) * 5 + (None,)
    config = small_config(window=DFLASH2_27B.window)
    drafter = bind_dflash2(Objects(config), config, recipe_of(config)).drafter
    assert {layer.window for layer in drafter.layers} == {2048}


def test_binding_asks_for_each_object_once_and_for_no_other() -> None:
    config = small_config()
    objects = Objects(config)
    bind_dflash(objects, config, recipe_of(config))
    assert sorted(objects.asked) == sorted(objects.below("dflash/"))
    objects.asked.clear()
    bind_dflash2(objects, config, recipe_of(config))
    assert sorted(objects.asked) == sorted(objects.below("dflash2/"))


def test_stored_formats_run_in_bf16_near_float64(drafter: Drafter) -> None:
    """Eight-bit matrices as artifacts hold them, activations and context of a real run."""
    packed = Objects(small_config(window=WINDOW))
    for name in packed.below(f"{drafter.kind}/"):
        values = packed.tensors[name].float()
        if values.ndim == 2 and "selector" not in name and "kernel" not in name:
            packed.tensors[name] = quantise(values, "W8G32_F16S")
            drafter.objects.tensors[name] = packed.tensors[name].dequantise(torch.float64)
        else:
            packed.tensors[name] = values.bfloat16()
            drafter.objects.tensors[name] = values.bfloat16().double()
    if isinstance(drafter.config, DflashConfig):
        drafter.weights = bind_dflash(packed, drafter.model, recipe_of(drafter.model))
    else:
        drafter.weights = bind_dflash2(packed, drafter.model, recipe_of(drafter.model)).drafter
    features = [f.bfloat16().double() for f in features_of(13)]
    block, want = drafter.block([3], [13], [7]), drafter.slow(features[0], 3, 7)
    drafter.extend(features, [(0, 13)])
    assert (drafter.run(block)[0] - want).abs().max() < 1e-9
    drafter.clear("bf16")
    drafter.extend([f.bfloat16() for f in features], [(0, 13)])
    (got,) = drafter.run(block, torch.bfloat16)
    assert got.dtype is torch.bfloat16
    assert float((got.double() - want).norm() / want.norm()) < 0.03
