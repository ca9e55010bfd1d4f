"""Prefix reuse: what admission takes from the cache and what prefill gives to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ninfer.models.forward_batch import Caches
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.prefix_cache import PrefixCache
from ninfer.runtime.prefix_keys import PrefixKey
from ninfer.runtime.prefix_match import worth_keeping
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.state_snapshots import StateSnapshots


@dataclass(frozen=True, slots=True)
class PrefixOptions:
    """How much recurrent state the cache may keep, and what must be equal for any reuse."""

    state_bytes: int
    salt: bytes


class PrefixReuse:
    """Between scheduler and cache. It holds only what prefill computed on the page grid, so a
    sequence that reuses a prefix produces what it would produce without."""

    def __init__(self, pages: PagePool, caches: Caches, options: PrefixOptions) -> None:
        self._snapshots = StateSnapshots(caches)
        self._salt: Final = options.salt
        self.cache = PrefixCache(pages, self._snapshots, options.state_bytes)

    def reuse(self, sequence: Sequence) -> None:
        """Give an admitted sequence, whose slot is clear, the longest prefix that is kept."""
        assert not sequence.pages and not sequence.cached
        match = self.cache.match(self._key(sequence))
        if not sequence.preemptions:
            # Later matches find what the sequence itself has left. Without what it would keep alive.
            sequence.match = replace(match, pages=(), snapshot=None)
        sequence.borders = worth_keeping(sequence.prompt_length, match)
        if match.snapshot is None:
            return
        sequence.pages = list(match.pages)
        sequence.cached = match.length
        self._snapshots.restore(match.snapshot, sequence.state_slot)

    def keep(self, sequence: Sequence) -> None:
        """Keep the prefix that a prefill piece has just completed, if it ends at a border."""
        if sequence.cached not in sequence.borders or sequence.generated:
            return
        snapshot = self._snapshots.save(sequence.state_slot)
        self.cache.insert(self._key(sequence), sequence.cached, sequence.pages, snapshot)

    def evict(self, pages: int) -> int:
        """Free pages that only the cache holds."""
        return self.cache.evict(pages)

    def check(self, held: Mapping[int, int]) -> None:
        """Assert that reference counts add up with what running sequences hold."""
        self.cache.check(held)

    def _key(self, sequence: Sequence) -> PrefixKey:
        return PrefixKey(sequence.tokens[: sequence.prompt_length], self._salt, sequence.spans)
