"""A prefix cache over real caches whose pages and states hold numbers made from the chain hash."""

from dataclasses import dataclass, field
from pathlib import Path

import torch

from ninfer.errors import CapacityError
from ninfer.models.config import AttentionSizes, GdnSizes, ModelConfig, TextConfig
from ninfer.ops.tensors import PagedKV
from ninfer.runtime.cache_views import CacheViews, page_views
from ninfer.runtime.caches import allocate_caches
from ninfer.runtime.config import PAGE_SIZE, RuntimeConfig
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.prefix_cache import PrefixCache
from ninfer.runtime.prefix_keys import MediaSpan, PrefixKey
from ninfer.runtime.prefix_match import PrefixMatch, worth_keeping
from ninfer.runtime.prefix_record import Record, RecordForm, decode
from ninfer.runtime.prefix_spill import Spill
from ninfer.runtime.prefix_store import Tier
from ninfer.runtime.state_snapshots import Snapshot, StateSnapshots

SALT = b"artifact='a'\n"


def small_config(layers: int = 4) -> ModelConfig:
    text = TextConfig(
        hidden=32,
        layers=layers,
        attention_interval=4,
        mlp_width=32,
        vocab_rows=64,
        addressable=64,
        eps=1e-6,
        context=4096,
        attention=AttentionSizes(2, 1, 8, 4, 1e6),
        gdn=GdnSizes(1, 2, 4, 4, 4),
    )
    return ModelConfig(text=text, mtp=False, draft_head_rows=0)


@dataclass(slots=True)
class Running:
    """What a request holds, as the runtime would."""

    key: PrefixKey
    match: PrefixMatch
    pages: list[int]


@dataclass(slots=True)
class Scene:
    """Pool, caches and prefix cache; `run` acts like a runtime that prefills one prompt."""

    page_count: int = 64
    states: int = 8
    tier: Tier | None = None
    kv_format: str = "bf16"
    layers: int = 4
    salt: bytes = SALT
    in_host_memory: bool = False
    running: list[Running] = field(default_factory=list)
    pool: PagePool = field(init=False)
    views: CacheViews = field(init=False)
    snapshots: StateSnapshots = field(init=False)
    cache: PrefixCache = field(init=False)

    def __post_init__(self) -> None:
        runtime = RuntimeConfig(
            device=torch.device("cpu"),
            dtype=torch.bfloat16,
            kv_format=self.kv_format,
            max_context=4096,
            pages=self.page_count,
            state_slots=1,
            prefill_chunk=1024,
        )
        caches = allocate_caches(small_config(self.layers), runtime)
        layers: dict[str, PagedKV] = {f"text.{n}": kv for n, kv in caches.attention.items()}
        self.pool = PagePool(self.page_count)
        self.views = page_views(layers)
        self.snapshots = StateSnapshots(caches, in_host_memory=self.in_host_memory)
        spill = None if self.tier is None else Spill(self.views, self.snapshots, self.tier)
        budget = self.states * self.snapshots.snapshot_bytes
        self.cache = PrefixCache(self.pool, self.snapshots, budget, spill)

    def key(self, tokens: list[int], spans: tuple[MediaSpan, ...] = ()) -> PrefixKey:
        return PrefixKey(tokens, self.salt, spans)

    def run(
        self, tokens: list[int], spans: tuple[MediaSpan, ...] = (), marks: tuple[int, ...] = ()
    ) -> PrefixMatch:
        """Prefill a prompt with reuse, keep what is worth keeping, and let go of it."""
        held = self.start(tokens, spans, marks)
        self.stop(held)
        return held.match

    def start(
        self, tokens: list[int], spans: tuple[MediaSpan, ...] = (), marks: tuple[int, ...] = ()
    ) -> Running:
        """As `run`, and stay running. Raises CapacityError, holding nothing, without pages."""
        key = self.key(tokens, spans)
        match = self.cache.match(key)
        self.assert_right(key, match)
        missing = -(-len(key) // PAGE_SIZE) - len(match.pages)
        try:
            if missing > self.pool.free_count:
                self.cache.evict(missing - self.pool.free_count)
            pages = [*match.pages, *self.pool.allocate(missing)]
        except CapacityError:
            self.pool.free(match.pages)
            raise
        held = Running(key, match, pages)
        self.running.append(held)
        for index in range(len(match.pages), key.pages):
            self.write_page(pages[index], key.chain(index + 1))
        for border in worth_keeping(len(key), match, marks):
            snapshot = self.state_of(key.chain(border // PAGE_SIZE))
            self.cache.insert(key, border, pages, snapshot)
        return held

    def stop(self, held: Running) -> None:
        self.running.remove(held)
        self.pool.free(held.pages)
        self.check()

    def check(self) -> None:
        counts: dict[int, int] = {}
        for held in self.running:
            for page in held.pages:
                counts[page] = counts.get(page, 0) + 1
        self.cache.check(counts)

    def assert_right(self, key: PrefixKey, match: PrefixMatch) -> None:
        """Pages and state are those that a prefill of this very prompt writes."""
        assert match.length == len(match.pages) * PAGE_SIZE <= max(len(key) - 1, 0)
        assert (match.snapshot is None) == (match.length == 0)
        host = torch.device("cpu")
        for index, page in enumerate(match.pages):
            want = numbers(self.views, key.chain(index + 1))
            for got, expected in zip(self.views.copy_out([page], host), want, strict=True):
                assert torch.equal(got, expected), f"page {index} holds something else"
        if match.snapshot is not None:
            want = self.state_of(key.chain(len(match.pages))).tensors
            for got, expected in zip(match.snapshot.tensors, want, strict=True):
                assert torch.equal(got, expected), "the state is another one"

    def write_page(self, page: int, chain: bytes) -> None:
        self.views.copy_in([page], numbers(self.views, chain))

    def state_of(self, chain: bytes) -> Snapshot:
        return Snapshot(numbers(self.snapshots.views, chain))


def numbers(views: CacheViews, chain: bytes) -> tuple[torch.Tensor, ...]:
    """One unit of numbers that differ for every chain hash and every tensor."""
    generator = torch.Generator().manual_seed(int.from_bytes(chain[:7], "little"))
    return tuple(
        torch.randint(-100, 100, (1, *t.shape[1:]), generator=generator).to(t.dtype)
        for t in views.tensors
    )


def words(length: int, seed: int) -> list[int]:
    """Token ids that differ from those of other seeds at the first place already."""
    generator = torch.Generator().manual_seed(seed)
    return [seed, *torch.randint(0, 50, (length - 1,), generator=generator).tolist()]


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.prefix"))


def record_of(path: Path, scene: Scene) -> Record:
    record = decode(bytearray(path.read_bytes()), form_of(scene))
    assert isinstance(record, Record)
    return record


def form_of(scene: Scene) -> RecordForm:
    return RecordForm.of(scene.views, scene.snapshots.views)
