"""Entries of the prefix cache on their way to a tier and back: page copies, chains of records."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch

from ninfer.runtime.cache_views import CacheViews
from ninfer.runtime.prefix_keys import PrefixKey
from ninfer.runtime.prefix_match import MissReason
from ninfer.runtime.prefix_record import Record, RecordForm
from ninfer.runtime.prefix_store import Tier
from ninfer.runtime.prefix_tree import Node
from ninfer.runtime.state_snapshots import Snapshot, StateSnapshots

_HOST: Final = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Records that continue cached pages, last one first; the last one's state is wanted.

    `trouble` says why an entry that would have reached further is of no use.
    """

    records: tuple[Record, ...]
    trouble: MissReason | None

    @property
    def length(self) -> int:
        """Pages after the restore."""
        return self.records[0].length

    @property
    def start(self) -> int:
        """Pages that must be in memory already."""
        return self.records[-1].start


@dataclass(frozen=True, slots=True)
class Search:
    """What a look into the tiers found; None: nothing, a reason: nothing of use."""

    found: RestorePlan | MissReason | None


class Written(NamedTuple):
    """Entries that a write put into a tier, and those for which there was no time or place."""

    stored: int
    left: int


class Spill:
    """Copies entries out of the caches into a tier, and plans and loads what comes back.

    A record holds the pages behind the border before it, and that border's own record those before,
    so a shared beginning is stored once. Both are written together, and the beginning is always the
    newer one, so that a tier does not drop it first.

    What is dropped goes to `tier`, at most `step_bytes` of copies between two calls of
    `begin_step`; what is stored ahead of that goes to `lasting`, which outlives the process.
    """

    def __init__(
        self,
        pages: CacheViews,
        snapshots: StateSnapshots,
        tier: Tier,
        *,
        lasting: Tier | None = None,
        step_bytes: int | None = None,
    ) -> None:
        self._pages = pages
        self._state_bytes = snapshots.snapshot_bytes
        self._device = snapshots.device
        self._tier = tier
        self._lasting = lasting or tier
        self._step_bytes = step_bytes
        self._spent = 0
        self.copied_bytes = 0  # both ways
        self._form = RecordForm.of(pages, snapshots.views)

    def begin_step(self) -> None:
        """Allow copies anew."""
        self._spent = 0

    def write(self, node: Node) -> Written:
        """Keep the entry of a border that is dropped, and those it continues."""
        return self._put(node, self._tier, self._step_bytes)

    def store(self, node: Node) -> Written:
        """Keep them where they outlive the process, however long the copies take."""
        return self._put(node, self._lasting, None)

    def _put(self, node: Node, tier: Tier, limit: int | None) -> Written:
        borders = [above for above in node.upwards() if above.boundary is not None]
        stored = 0
        # The beginning first: without it what follows would be of no use.
        for index, border in enumerate(reversed(borders)):
            assert border.boundary is not None
            if tier.touch(border.chain):
                continue
            size = (border.depth - border.base) * self._pages.unit_bytes + self._state_bytes
            if limit is not None:
                if self._spent + size > limit:
                    return Written(stored, len(borders) - index)
                self._spent += size
            if not tier.put(self._record(border, border.boundary.snapshot)):
                return Written(stored, len(borders) - index)
            stored += 1
        for border in borders:
            tier.touch(border.chain)
        return Written(stored, 0)

    def _record(self, node: Node, snapshot: Snapshot) -> Record:
        path, base = node.path, node.base
        nodes, root = path[base:], path[0].parent
        first = nodes[0].parent
        assert first is not None and root is not None
        self.copied_bytes += len(nodes) * self._pages.unit_bytes + self._state_bytes
        return Record(
            salt=root.salt,
            layout=self._form.layout,
            before=first.chain,
            chain=node.chain,
            start=base,
            contents=tuple(n.content for n in nodes if n.content is not None),
            pages=self._pages.copy_out([n.page for n in nodes], _HOST),
            state=tuple(t.to(_HOST) for t in snapshot.tensors),
        )

    def search(self, key: PrefixKey, cached: int, best: int) -> Search:
        """How to get beyond `best` pages, behind which a state is in memory, with `cached` pages.

        It reads from tiers and touches neither caches nor device, so any thread may run it.
        """
        return Search(self._plan(key, cached, best))

    def _plan(self, key: PrefixKey, cached: int, best: int) -> RestorePlan | MissReason | None:
        trouble: MissReason | None = None
        for length in range(key.reusable, best, -1):
            if not self._tier.holds(key.chain(length)):
                continue
            records = self._chain(key, length, cached)
            if not isinstance(records, MissReason):
                return RestorePlan(records, trouble)
            trouble = trouble or records
        return trouble

    def load(self, plan: RestorePlan, cached: int, pages: list[int]) -> None:
        """Fill `pages`, which follow the `cached` ones, from the records."""
        for record in plan.records:
            start = max(record.start, cached)
            if start < record.length:
                skip = start - record.start
                target = pages[start - cached : record.length - cached]
                self.copied_bytes += len(target) * self._pages.unit_bytes
                self._pages.copy_in(target, (t[skip:] for t in record.pages))

    def snapshot(self, plan: RestorePlan) -> Snapshot:
        """The state behind the last page."""
        self.copied_bytes += self._state_bytes
        # Copied even within host memory: a view would keep the whole record.
        return Snapshot(tuple(t.to(self._device, copy=True) for t in plan.records[0].state))

    def _chain(self, key: PrefixKey, length: int, cached: int) -> tuple[Record, ...] | MissReason:
        """Records from `length` back to the cached pages, or why there are not enough."""
        records: list[Record] = []
        while not records or records[-1].start > cached:
            record = self._read(key, records[-1].start if records else length)
            if isinstance(record, MissReason):
                # Without its beginning an entry is of no use, now and later.
                self._tier.drop(key.chain(length))
                return record
            records.append(record)
        return tuple(records)

    def _read(self, key: PrefixKey, length: int) -> Record | MissReason:
        record = self._tier.get(key.chain(length), self._form)
        if record is None:
            return MissReason.BOUNDARY_EVICTED
        if isinstance(record, MissReason):
            return record
        if record.salt != key.salt or record.length != length or not record.contents:
            return MissReason.STORED_CHANGED
        contents = tuple(key.page(i) for i in range(record.start, length))
        same = record.contents == contents and record.before == key.chain(record.start)
        return record if same else MissReason.STORED_DAMAGED
