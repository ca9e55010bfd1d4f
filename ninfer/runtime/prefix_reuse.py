"""Prefix reuse: what admission takes from the cache and its tiers, and what prefill gives to it."""

import hashlib
from collections.abc import Mapping, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ninfer.models.forward_batch import Caches
from ninfer.runtime.cache_views import CacheViews
from ninfer.runtime.config import PAGE_SIZE
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.logprobs import needs_prompt_logprobs
from ninfer.runtime.prefix_cache import PrefixCache
from ninfer.runtime.prefix_keys import PrefixKey
from ninfer.runtime.prefix_match import MissReason, PrefixMatch, PrefixStats, worth_keeping
from ninfer.runtime.prefix_spill import Search, Spill
from ninfer.runtime.prefix_store import DiskTier, HostTier, Tier
from ninfer.runtime.prefix_writer import WriteBehind
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.state_snapshots import StateSnapshots

# Copies to host memory in one step: about a tenth of a second over the bus of a card.
STEP_BYTES: Final = 1 << 30
# Records that may wait for a disk.
QUEUE_BYTES: Final = 4 << 30
# A search that finds nothing, or its records in memory, is done by then and costs no step.
_SEARCH_SECONDS: Final = 0.002
# How long a step without other work waits for a disk before commands are heard again.
_READ_SECONDS: Final = 0.01
# How long nothing is stored ahead while the disk still writes what came before.
_WRITE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class PrefixOptions:
    """How much recurrent state the cache may keep, what must be equal for any reuse, and the tiers.

    `host_bytes` of entries that were dropped stay in host memory, `disk_bytes` in `folder`. With
    `reuse_decoded` pages and states that decoding computed are kept too; they may differ in their
    last bits from what prefill computes, so a continuation may get other tokens than without.
    """

    state_bytes: int
    salt: bytes
    host_bytes: int = 0
    folder: Path | None = None
    disk_bytes: int = 0
    step_bytes: int = STEP_BYTES
    reuse_decoded: bool = False


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A prompt for which the tiers are being searched."""

    key: PrefixKey
    search: Future[Search]


class PrefixReuse:
    """Between scheduler and cache. It holds only what prefill computed on the page grid, so a
    sequence that reuses a prefix produces what it would produce without; `reuse_decoded` gives
    that up.

    With a folder, two threads read and write it: a step never waits for the disk while it has other
    work. A sequence whose beginning is being read waits in front of the queue.
    """

    def __init__(
        self,
        pages: PagePool,
        caches: Caches,
        options: PrefixOptions,
        views: CacheViews,
    ) -> None:
        """`views` has the pages of all layers, the drafter's included.

        Raises UsageError when the folder cannot be made or read.
        """
        self._snapshots = StateSnapshots(caches)
        self._reuse_decoded = options.reuse_decoded
        self._salt: Final = options.salt
        self._disk = (
            None if options.folder is None else DiskTier(options.folder, options.disk_bytes)
        )
        self._writer = None if self._disk is None else WriteBehind(self._disk, QUEUE_BYTES)
        self.host: Final = (
            HostTier(options.host_bytes, self._writer) if options.host_bytes else None
        )
        self._reader = None
        if self._writer is not None:
            self._reader = ThreadPoolExecutor(1, thread_name_prefix="ninfer-prefix-reader")
        self._wanted: dict[Sequence, _Wanted] = {}
        tier: Tier | None = self.host or self._writer
        self._spill = None
        if tier is not None:
            self._spill = Spill(
                views, self._snapshots, tier, lasting=self._writer, step_bytes=options.step_bytes
            )
        self.cache = PrefixCache(pages, self._snapshots, options.state_bytes, self._spill)

    @property
    def stats(self) -> PrefixStats:
        """Counters since the start, those of the disk as of now."""
        stats = self.cache.stats
        if self._writer is not None and self._disk is not None:
            stats.failed_writes = self._writer.refused + self._disk.failures
        return stats

    @property
    def transferred_bytes(self) -> int:
        """Bytes that were copied between the caches and host memory, both ways."""
        return 0 if self._spill is None else self._spill.copied_bytes

    @property
    def wanted(self) -> Set[Sequence]:
        """Sequences for which the tiers are being searched."""
        return self._wanted.keys()

    def begin_step(self) -> None:
        """Allow the copies of one step."""
        if self._spill is not None:
            self._spill.begin_step()

    def is_ready(self, sequence: Sequence) -> bool:
        """Whether what the tiers have for a waiting sequence is in memory; starts the search."""
        if self._reader is None or self._spill is None or needs_prompt_logprobs(sequence):
            return True
        wanted = self._wanted.get(sequence)
        if wanted is None:
            key = self._key(sequence)
            search = self._reader.submit(self._spill.search, key, *self.cache.depths(key))
            wanted = self._wanted[sequence] = _Wanted(key, search)
            wait([search], timeout=_SEARCH_SECONDS)
        return wanted.search.done()

    def pause(self) -> None:
        """Wait a moment for the disk, for a step that has nothing else to do."""
        searches = [wanted.search for wanted in self._wanted.values()]
        wait(searches, timeout=_READ_SECONDS, return_when=FIRST_COMPLETED)

    def forget(self, sequence: Sequence) -> None:
        """Drop what was searched for a sequence that ends."""
        self._wanted.pop(sequence, None)

    def reuse(self, sequence: Sequence) -> None:
        """Give an admitted sequence, whose slot is clear, the longest prefix that is kept.

        One that asks for log-probabilities of its prompt gets none: they are computed anew.
        """
        assert not sequence.pages and not sequence.cached
        match = self._match(sequence)
        if not sequence.preemptions:
            # Later matches find what the sequence itself left. A snapshot would stay alive by it.
            sequence.match = replace(match, pages=(), snapshot=None)
        sequence.borders = worth_keeping(sequence.prompt_length, match)
        if match.snapshot is None:
            return
        sequence.pages = list(match.pages)
        sequence.cached = match.length
        self._snapshots.restore(match.snapshot, sequence.state_slot)

    def _match(self, sequence: Sequence) -> PrefixMatch:
        wanted = self._wanted.pop(sequence, None)
        if wanted is not None:
            return self.cache.match(wanted.key, wanted.search.result())
        if needs_prompt_logprobs(sequence):
            match = PrefixMatch(reason=MissReason.PROMPT_LOGPROBS)
            self.cache.stats.count(match, sequence.prompt_length)
            return match
        return self.cache.match(self._key(sequence))

    def keep(self, sequence: Sequence) -> None:
        """Keep the prefix that a piece has just completed, if it ends at a border.

        Of what was decoded only the last page border is of use: the next turn continues there.
        """
        length, replaced = sequence.cached, 0
        if sequence.generated:
            if not self._reuse_decoded or length % PAGE_SIZE or length <= sequence.prompt_length:
                return
            key = PrefixKey(sequence.tokens[:length], self._salt_of(sequence), sequence.spans)
            replaced = length - PAGE_SIZE if length - PAGE_SIZE > sequence.prompt_length else 0
        elif length in sequence.borders:
            key = self._key(sequence)
        else:
            return
        snapshot = self._snapshots.save(sequence.state_slot)
        if not snapshot.is_finite:
            # Its own request fails soon; kept, it would fail everyone with the same beginning.
            return
        self.cache.insert(key, length, sequence.pages, snapshot, instead_of=replaced)

    def evict(self, pages: int) -> int:
        """Free pages that only the cache holds."""
        return self.cache.evict(pages)

    def tidy(self) -> float | None:
        """Write one new entry to the folder, for idle times.

        Returns after how many seconds there is more to do, None when everything is written.
        """
        if self._writer is None:
            return None
        if self._writer.is_busy:
            return _WRITE_SECONDS
        return _WRITE_SECONDS if self.cache.store_next() else None

    def close(self) -> None:
        """Write everything to the folder, for the orderly end of a process; it may take a while."""
        if self._writer is None or self._reader is None:
            return
        self._reader.shutdown(cancel_futures=True)
        self._reader = None
        self._writer.settle()
        self.cache.store_all()
        if self.host is not None:
            self.host.flush()

    def check(self, held: Mapping[int, int]) -> None:
        """Assert that reference counts add up with what running sequences hold."""
        self.cache.check(held)

    def _key(self, sequence: Sequence) -> PrefixKey:
        tokens = sequence.tokens[: sequence.prompt_length]
        return PrefixKey(tokens, self._salt_of(sequence), sequence.spans)

    def _salt_of(self, sequence: Sequence) -> bytes:
        # Both have a fixed length once hashed, so no two pairs give the same bytes.
        own = sequence.cache_salt
        return self._salt + hashlib.blake2b(own, digest_size=16).digest() if own else self._salt
