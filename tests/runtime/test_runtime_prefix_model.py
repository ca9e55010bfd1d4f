"""Reuse in front of a real model: logits after a warm start have the bits of a cold one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from ninfer.artifact import open_artifact
from ninfer.models import CONFIG_RESOURCE, ModelConfig, resolve_config
from ninfer.models.forward_batch import Caches, ForwardBatch
from ninfer.models.qwen3_6 import TextWeights, bind_text, decode, logits, recipe_for
from ninfer.ops.tensors import RaggedRows
from ninfer.runtime.cache_views import page_views
from ninfer.runtime.caches import allocate_caches
from ninfer.runtime.config import PAGE_SIZE, RuntimeConfig
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.prefix_cache import PrefixCache
from ninfer.runtime.prefix_keys import PrefixKey
from ninfer.runtime.prefix_match import PrefixMatch, worth_keeping
from ninfer.runtime.prefix_spill import Spill
from ninfer.runtime.prefix_store import DiskTier, Tier
from ninfer.runtime.state_snapshots import StateSnapshots

Model = tuple[TextWeights, ModelConfig]


@pytest.fixture(scope="module")
def model(micro_artifacts: dict[str, Path]) -> Model:
    with open_artifact(micro_artifacts["dense"]) as artifact:
        fields = json.loads(artifact.resource(CONFIG_RESOURCE))
        config = resolve_config(artifact.identity, fields)

        def decoded(name: str) -> torch.Tensor:
            stored = artifact.tensor(name)
            if isinstance(stored, torch.Tensor):
                return stored.to(torch.float32)
            return stored.dequantise(torch.float32)

        return bind_text(decoded, config, recipe_for(config, "groupwise-int")), config


@dataclass(slots=True)
class Engine:
    """One sequence at a time in state slot 0: match, restore, prefill the rest, keep, let go."""

    model: Model
    pages: int = 80
    states: int = 6
    kv_format: str = "bf16"
    tier: Tier | None = None
    caches: Caches = field(init=False)
    pool: PagePool = field(init=False)
    snapshots: StateSnapshots = field(init=False)
    cache: PrefixCache = field(init=False)

    def __post_init__(self) -> None:
        runtime = RuntimeConfig(
            device=torch.device("cpu"),
            dtype=torch.float32,
            kv_format=self.kv_format,
            max_context=self.pages * PAGE_SIZE,
            pages=self.pages,
            state_slots=1,
            prefill_chunk=256,
        )
        self.caches = allocate_caches(self.model[1], runtime)
        self.pool = PagePool(self.pages)
        self.snapshots = StateSnapshots(self.caches)
        views = page_views({f"text.{n}": kv for n, kv in self.caches.attention.items()})
        spill = None if self.tier is None else Spill(views, self.snapshots, self.tier)
        budget = self.states * self.snapshots.snapshot_bytes
        self.cache = PrefixCache(self.pool, self.snapshots, budget, spill)

    def ask(self, tokens: list[int]) -> tuple[PrefixMatch, torch.Tensor]:
        """What was reused, and the logits behind the prompt."""
        key = PrefixKey(tokens, b"micro")
        match = self.cache.match(key)
        missing = -(-len(tokens) // PAGE_SIZE) - len(match.pages)
        self.cache.evict(missing - self.pool.free_count)
        pages = [*match.pages, *self.pool.allocate(missing)]
        for state in self.snapshots.views.tensors:
            state.zero_()
        if match.snapshot is not None:
            self.snapshots.restore(match.snapshot, 0)
        start = match.length
        for border in (*worth_keeping(len(tokens), match), len(tokens)):
            if border > start:
                values = self.prefill(tokens, start, border, pages)
            if border % PAGE_SIZE == 0:
                self.cache.insert(key, border, pages, self.snapshots.save(0))
            start = border
        self.pool.free(pages)
        self.cache.check({})
        return match, values

    def prefill(
        self, tokens: Sequence[int], start: int, stop: int, pages: list[int]
    ) -> torch.Tensor:
        span = torch.arange(start, stop)
        rows = RaggedRows(
            offsets=torch.tensor([0, stop - start]),
            kv_lengths=torch.tensor([stop]),
            page_table=torch.tensor([pages]),
            state_slots=torch.tensor([0]),
        )
        batch = ForwardBatch(
            tokens=torch.tensor(tokens[start:stop]),
            positions=span.expand(3, -1),
            rows=rows,
            kv_slots=torch.tensor(pages)[span // PAGE_SIZE] * PAGE_SIZE + span % PAGE_SIZE,
            logit_rows=torch.tensor([stop - start - 1]),
        )
        weights, config = self.model
        with torch.inference_mode():
            hidden, _ = decode(weights, config.text, batch, self.caches, dtype=torch.float32)
            return logits(weights, hidden, batch.logit_rows)


def prompt_of(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 500, (length,), generator=generator).tolist()


def cold(model: Model, tokens: list[int], kv_format: str = "bf16") -> torch.Tensor:
    match, values = Engine(model, kv_format=kv_format).ask(tokens)
    assert match.length == 0
    return values


@pytest.mark.parametrize("kv_format", ["bf16", "int8", "fp8", "int4"])
def test_d5_conversations_with_a_shared_head_answer_as_when_cold(
    model: Model, kv_format: str
) -> None:
    engine = Engine(model, kv_format=kv_format)
    head = prompt_of(512, 1)
    prompts = [head + prompt_of(90, 2), head + prompt_of(90, 3)]
    prompts.append(prompts[0] + prompt_of(70, 4))
    prompts.append(head + prompt_of(30, 5))
    lengths = []
    for tokens in prompts:
        match, values = engine.ask(tokens)
        lengths.append(match.length)
        assert torch.equal(values, cold(model, tokens, kv_format))
    assert lengths == [0, 0, 576, 512]


def test_d8_each_turn_reuses_all_before_it(model: Model) -> None:
    engine, tokens, lengths = Engine(model), prompt_of(200, 1), []
    for turn in range(4):
        match, values = engine.ask(tokens)
        lengths.append(match.length)
        assert torch.equal(values, cold(model, tokens))
        tokens = tokens + prompt_of(90, 10 + turn)
    assert lengths == [0, 192, 256, 320]


@pytest.mark.parametrize("kv_format", ["bf16", "int8", "fp8", "int4"])
def test_after_a_restart_the_disk_gives_the_same_logits(
    model: Model, tmp_path: Path, kv_format: str
) -> None:
    before = Engine(model, kv_format=kv_format, tier=DiskTier(tmp_path, 1 << 30))
    tokens = prompt_of(400, 1)
    before.ask(tokens)
    before.ask(tokens + prompt_of(90, 2))
    assert before.cache.store_all() == 2
    after = Engine(model, kv_format=kv_format, tier=DiskTier(tmp_path, 1 << 30))
    longer = tokens + prompt_of(90, 2) + prompt_of(50, 3)
    match, values = after.ask(longer)
    assert match.length == 448
    assert torch.equal(values, cold(model, longer, kv_format))


def test_eviction_and_return_do_not_change_logits(model: Model, tmp_path: Path) -> None:
    engine = Engine(model, pages=9, states=2, tier=DiskTier(tmp_path, 1 << 30))
    prompts = [prompt_of(300, seed) for seed in (1, 2, 3)]
    want = [cold(model, tokens) for tokens in prompts]
    for attempt in range(2):
        for tokens, expected in zip(prompts, want, strict=True):
            match, values = engine.ask(tokens)
            assert match.length == 256 * attempt
            assert torch.equal(values, expected)
    assert engine.cache.stats.restored == 3
