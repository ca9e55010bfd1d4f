"""Prefix cache: which beginnings of prompts need no prefill, and what is dropped for others."""

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from typing import Final

from ninfer.log import get_logger
from ninfer.runtime.config import PAGE_SIZE
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.prefix_keys import PrefixKey
from ninfer.runtime.prefix_match import MissReason, PrefixMatch, PrefixStats
from ninfer.runtime.prefix_spill import RestorePlan, Search, Spill
from ninfer.runtime.prefix_tree import Boundary, Node, PrefixTree
from ninfer.runtime.state_snapshots import Snapshot, StateSnapshots

log = get_logger(__name__)

# Remembered only to say "was dropped"; at 20 bytes and some overhead each.
_GHOSTS: Final = 1 << 15


class PrefixCache:
    """Pages and states of earlier prompts, shared with running sequences by reference counts.

    An entry is a border on the page grid with a state, and the pages before it; it must hold only
    what prefill computed on the 64-token grid. States may take `capacity_bytes`; pages are bounded
    by the pool, out of which `evict` gives them back. With `spill`, what is dropped goes to a tier
    and comes back when a prompt needs it.

    The value of an entry is the prefill that it saves over the border before it, times its uses,
    divided by how long ago the last one was. So everything unused is dropped in the end.
    """

    def __init__(
        self,
        pages: PagePool,
        snapshots: StateSnapshots,
        capacity_bytes: int,
        spill: Spill | None = None,
    ) -> None:
        self._pool = pages
        self._size = snapshots.snapshot_bytes
        self._limit = capacity_bytes // max(self._size, 1)
        self._spill = spill
        self._tree = PrefixTree()
        self._ghosts: OrderedDict[bytes, None] = OrderedDict()
        self._unstored: dict[Node, None] = {}  # borders new since they were last stored
        self._tick = 0
        self.stats = PrefixStats()
        if not self.active:
            log.warning(
                "prefix reuse is off: one state takes %d bytes, its budget is %d bytes",
                self._size,
                capacity_bytes,
            )

    @property
    def active(self) -> bool:
        """Whether the budget holds at least one state."""
        return self._limit > 0

    @property
    def state_bytes(self) -> int:
        """Bytes of the states kept."""
        return len(self._tree.borders) * self._size

    @property
    def page_count(self) -> int:
        """Pages that the cache holds, alone or with running sequences."""
        return sum(1 for _ in self._tree.nodes())

    @property
    def reclaimable(self) -> int:
        """Pages that `evict` could free now: those that no running sequence holds."""
        return self._unshared(self._tree.nodes())

    def depths(self, key: PrefixKey) -> tuple[int, int]:
        """Pages of a prompt that are cached, and those of them before the last state."""
        path = self._tree.walk(key, key.reusable)
        return len(path), _last_border(path)

    def match(self, key: PrefixKey, search: Search | None = None) -> PrefixMatch:
        """The longest reusable beginning of a prompt, and why it is not longer.

        Its pages are retained for the caller. At least one token is left to prefill. `search` is
        what a look into the tiers gave, if that was done beforehand.
        """
        self._tick += 1
        found = self._found(key, search) if self.active else PrefixMatch()
        self.stats.count(found, len(key))
        return found

    def insert(
        self,
        key: PrefixKey,
        length: int,
        pages: Items[int],
        snapshot: Snapshot,
        *,
        instead_of: int = 0,
    ) -> int:
        """Keep the first `length` tokens of `key`: its `pages` and the state behind them.

        `length` is a multiple of 64; `pages` may be more than that needs. Pages that are cached
        already stay as they are. Returns how many the cache took a share of. An entry is refused,
        and counted, only when no state fits at all or a hash stands for two contents. The state
        behind `instead_of` tokens goes, unless something else has used it.
        """
        assert 0 < length <= len(key) and length % PAGE_SIZE == 0, length
        self._tick += 1
        count = length // PAGE_SIZE
        path = self._tree.walk(key, count)
        fresh = list(pages[len(path) : count])
        assert len(path) + len(fresh) == count, "pages are missing"
        longer = self._tree.extend(key, path, fresh) if self.active else None
        if longer is None:
            self.stats.refused += 1
            return 0
        self._pool.retain(fresh)
        self._keep_state(longer[-1], snapshot)
        self.stats.inserted += 1
        if instead_of:
            self._supersede(longer[instead_of // PAGE_SIZE - 1])
        return len(fresh)

    def evict(self, pages_needed: int) -> int:
        """Drop entries until so many pages became free; returns how many did.

        Fewer only when running sequences hold all others. Their pages stay theirs, though the
        entry may go when it stands before pages that nobody uses.
        """
        return self._evict(pages_needed, frozenset())

    def clear(self) -> None:
        """Drop everything; stored entries stay where they are."""
        self._unstored.clear()
        for node in sorted(self._tree.borders, key=lambda node: -node.depth):
            self._release(self._tree.unmark(node))

    def store_all(self) -> int:
        """Write every entry to the tier that is not there yet; returns how many were written.

        For idle times and the end of a process: what was written outlives it.
        """
        leaves = [node for node in self._tree.borders if not node.children]
        return sum(self._store(node) for node in leaves)

    def store_next(self) -> bool:
        """Write one entry that is new since it was last written; False when there is none."""
        node = next(iter(self._unstored), None)
        if node is not None:
            self._store(node)
        return node is not None

    def check(self, held: Mapping[int, int] | None = None) -> None:
        """Assert structure and reference counts.

        `held` says how many running sequences hold each page; with it counts must add up exactly.
        """
        self._tree.check()
        assert len(self._tree.borders) <= max(self._limit, 0)
        pages = [node.page for node in self._tree.nodes()]
        assert len(set(pages)) == len(pages), "a page is cached twice"
        for page in pages:
            assert self._pool.owners(page) > 0, f"cached page {page} is free"
        if held is not None:
            cached = set(pages)
            for page in range(self._pool.capacity):
                owners = (page in cached) + held.get(page, 0)
                assert self._pool.owners(page) == owners, f"page {page}"

    def _found(self, key: PrefixKey, search: Search | None) -> PrefixMatch:
        path = self._tree.walk(key, key.reusable)
        trouble = None
        if self._spill is not None:
            search = search or self._spill.search(key, len(path), _last_border(path))
            path, trouble = self._restored(self._spill, key, path, search.found)
        best = next((node for node in reversed(path) if node.boundary is not None), None)
        if best is None or best.boundary is None:
            reason, token = self._reason(key, path, 0)
            return PrefixMatch(reason=trouble or reason, token=token, shared=len(path) * PAGE_SIZE)
        self._touch(best.boundary)
        pages = tuple(node.page for node in path[: best.depth])
        self._pool.retain(pages)
        reason, token = self._reason(key, path, best.depth)
        return PrefixMatch(
            length=best.depth * PAGE_SIZE,
            pages=pages,
            snapshot=best.boundary.snapshot,
            reason=trouble or reason,
            token=token,
            shared=len(path) * PAGE_SIZE,
        )

    def _reason(
        self, key: PrefixKey, path: list[Node], reused: int
    ) -> tuple[MissReason | None, int | None]:
        if not key.reusable:
            return MissReason.TOO_SHORT, None
        if reused == key.reusable:
            return None, None
        if any(node.lost for node in path[reused:]):
            return MissReason.BOUNDARY_EVICTED, None
        if len(path) < key.reusable and key.chain(len(path) + 1) in self._ghosts:
            return MissReason.BOUNDARY_EVICTED, None
        if not path and self._tree.other_salt(key):
            return MissReason.SALT_CHANGED, None
        if len(path) < key.reusable:
            unlike = self._tree.nearest_difference(key, path)
            if unlike is not None and unlike[1]:
                return MissReason.MEDIA_CHANGED, unlike[0]
            if unlike is not None and unlike[0]:
                return MissReason.TEMPLATE_CHANGED, unlike[0]
        if len(path) > reused:
            return MissReason.NO_BOUNDARY, None
        return (MissReason.NEW_TOKENS if path else MissReason.NO_MATCH), None

    def _restored(
        self,
        spill: Spill,
        key: PrefixKey,
        path: list[Node],
        plan: RestorePlan | MissReason | None,
    ) -> tuple[list[Node], MissReason | None]:
        """The path with what a tier adds to it, and why it did not when it could have."""
        if isinstance(plan, MissReason) or plan is None:
            return path, plan
        if plan.length <= _last_border(path):
            return path, None
        if plan.start > len(path):
            # Pages that were there when the tier was searched have gone since.
            return path, MissReason.BOUNDARY_EVICTED
        missing = plan.length - len(path)
        if missing > self._pool.free_count:
            self._evict(missing - self._pool.free_count, frozenset(path))
        if missing > self._pool.free_count:
            return path, MissReason.NO_ROOM
        pages = self._pool.allocate(max(missing, 0))
        longer = self._tree.extend(key, path[: plan.length], pages)
        if longer is None:
            self._pool.free(pages)
            return path, MissReason.NO_MATCH
        spill.load(plan, len(path), pages)
        self._keep_state(longer[-1], spill.snapshot(plan))
        self.stats.restored += 1
        return (longer if missing > 0 else path), plan.trouble

    def _keep_state(self, node: Node, snapshot: Snapshot) -> None:
        if node.boundary is not None:
            self._touch(node.boundary)
            return
        self._tree.mark(node, Boundary(snapshot, self._tick))
        self._unstored[node] = None
        while len(self._tree.borders) > self._limit:
            victim = min((n for n in self._tree.borders if n is not node), key=self._value)
            self._drop(victim)

    def _supersede(self, node: Node) -> None:
        if node.boundary is not None and node.boundary.uses == 1:
            self._unstored.pop(node, None)
            gone = self._tree.unmark(node)
            assert not gone, "a later page follows"

    def _store(self, node: Node) -> int:
        self._unstored.pop(node, None)
        if self._spill is None:
            return 0
        stored, left = self._spill.store(node)
        self.stats.stored += stored
        self.stats.unstored += left
        return stored

    def _touch(self, boundary: Boundary) -> None:
        boundary.used = self._tick
        boundary.uses += 1

    def _value(self, node: Node) -> float:
        assert node.boundary is not None
        age = self._tick - node.boundary.used + 1
        return (node.depth - node.base) * node.boundary.uses / age

    def _evict(self, pages_needed: int, keep: frozenset[Node]) -> int:
        before = self._pool.free_count
        heap: list[tuple[bool, float, int, Node]] = []
        for node in self._tree.borders:
            self._offer(heap, node, keep)
        while heap and self._pool.free_count - before < pages_needed:
            *_, node = heapq.heappop(heap)
            parent = self._drop(node)
            if parent is not None and parent.boundary is not None:
                self._offer(heap, parent, keep)
        return self._pool.free_count - before

    def _offer(
        self, heap: list[tuple[bool, float, int, Node]], node: Node, keep: frozenset[Node]
    ) -> None:
        """Add a leaf to those that may be dropped, unless that could never free a page."""
        if node.children:
            return
        tail = node.tail
        if not keep.isdisjoint(tail):
            return
        gain = self._unshared(tail)
        if gain or self._unshared(node.upwards()):
            # Pages that somebody holds become free by none; they only stand in the way of others.
            value = self._value(node) / max(gain, 1)
            heapq.heappush(heap, (gain == 0, value, node.page, node))

    def _unshared(self, nodes: Iterable[Node]) -> int:
        owners = self._pool.owners
        return sum(1 for node in nodes if owners(node.page) == 1)

    def _drop(self, node: Node) -> Node | None:
        """Drop the state of a border and the pages that only it made reusable.

        Returns the page before them when that is a leaf now.
        """
        if self._spill is not None and not node.children:
            stored, left = self._spill.write(node)
            self.stats.stored += stored
            self.stats.unstored += left
        self._unstored.pop(node, None)
        gone = self._tree.unmark(node)
        self.stats.dropped_states += 1
        self._release(gone)
        parent = gone[-1].parent if gone else None
        return parent if parent is not None and not parent.children else None

    def _release(self, gone: list[Node]) -> None:
        self.stats.dropped_pages += len(gone)
        self._pool.free(node.page for node in gone)
        for node in gone:
            self._ghosts[node.chain] = None
            self._ghosts.move_to_end(node.chain)
        while len(self._ghosts) > _GHOSTS:
            self._ghosts.popitem(last=False)


def _last_border(path: list[Node]) -> int:
    """Pages before the last state of a path, 0 without one."""
    return next((node.depth for node in reversed(path) if node.boundary is not None), 0)
