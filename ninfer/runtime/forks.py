"""Sequences of one prompt: it is computed once, and each goes on from the state behind it."""

from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

from ninfer.models.forward_batch import Caches
from ninfer.runtime.cache_views import CacheViews
from ninfer.runtime.config import PAGE_SIZE
from ninfer.runtime.kv_pages import PagePool
from ninfer.runtime.sequence import Sequence
from ninfer.runtime.state_snapshots import Snapshot, StateSnapshots


@dataclass(slots=True, eq=False)
class _Fork:
    """What stood behind a prompt. It owns `pages`; only the last one, if it is not full, alone."""

    length: int
    pages: list[int]
    snapshot: Snapshot
    heirs: set[Sequence]  # that have not taken it yet


class Forks:
    """Leaders compute a prompt; heirs wait for it, then start behind it.

    Full pages are shared. A page that the prompt fills in part is copied, since each goes on to
    write into it, and so is the recurrent state, which waits in host memory. A fork that is dropped
    costs its heirs the prefill of the prompt and changes nothing else.
    """

    def __init__(self, pages: PagePool, caches: Caches, views: CacheViews) -> None:
        """`views` has the pages of all layers, the drafter's included."""
        self._pool = pages
        self._views = views
        self._device = caches.pending.device
        self._snapshots = StateSnapshots(caches, in_host_memory=True)
        self._waiting: dict[Sequence, list[Sequence]] = {}  # leader -> heirs
        self._forks: dict[Sequence, _Fork] = {}  # heir -> what it will take

    @property
    def pages(self) -> Iterator[int]:
        """The pages that forks hold."""
        for fork in set(self._forks.values()):
            yield from fork.pages

    def join(self, leader: Sequence, heirs: Items[Sequence]) -> None:
        """Let queued sequences of one prompt wait for the first of them."""
        for heir in heirs:
            heir.leader = leader
        if heirs:
            self._waiting[leader] = list(heirs)

    def heirs(self, leader: Sequence) -> list[Sequence]:
        """Who waits for a sequence's prompt."""
        return self._waiting.get(leader, [])

    def open(self, leader: Sequence, heirs: Items[Sequence]) -> None:
        """Keep what stands behind the leader's whole prompt, which is committed, for these heirs.

        All its heirs may start from now on. Where there is no page for a copy they compute the
        prompt themselves.
        """
        for heir in self._waiting.pop(leader):
            heir.leader = None
        length, full = leader.prompt_length, leader.prompt_length // PAGE_SIZE
        assert leader.cached == length
        partial = leader.pages[full : full + 1] if length % PAGE_SIZE else []
        if not heirs or len(partial) > self._pool.free_count:
            return
        pages = leader.pages[:full]
        self._pool.retain(pages)
        fork = _Fork(
            length,
            pages + self._copies(partial),
            self._snapshots.save(leader.state_slot),
            set(heirs),
        )
        for heir in heirs:
            heir.inherits = full
            self._forks[heir] = fork

    def holds(self, sequence: Sequence) -> bool:
        """Whether there is something for a sequence to take."""
        return sequence in self._forks

    def take(self, sequence: Sequence) -> bool:
        """Give an admitted heir, whose slot is clear, what it inherits; False if that is nothing.

        The last heir takes the fork itself.
        """
        fork = self._forks.pop(sequence, None)
        sequence.inherits = 0
        if fork is None:
            return False
        assert not sequence.pages and not sequence.cached
        fork.heirs.remove(sequence)
        full = fork.length // PAGE_SIZE
        if not fork.heirs:
            sequence.pages = fork.pages
        elif len(fork.pages) - full > self._pool.free_count:
            return False
        else:
            shared = fork.pages[:full]
            self._pool.retain(shared)
            sequence.pages = shared + self._copies(fork.pages[full:])
        sequence.cached = fork.length
        self._snapshots.restore(fork.snapshot, sequence.state_slot)
        return True

    def drop(self) -> bool:
        """Give up all forks for their pages; False if there is none."""
        forks = set(self._forks.values())
        for heir in self._forks:
            heir.inherits = 0
        self._forks.clear()
        for fork in forks:
            self._pool.free(fork.pages)
        return bool(forks)

    def forget(self, sequence: Sequence) -> None:
        """A sequence has ended: what it alone would have taken is free, its heirs have another."""
        heirs = self._waiting.pop(sequence, [])
        if heirs:
            heirs[0].leader = None
            self.join(heirs[0], heirs[1:])
        if sequence.leader is not None:
            self._leave(sequence, sequence.leader)
        fork = self._forks.pop(sequence, None)
        if fork is not None:
            fork.heirs.remove(sequence)
            if not fork.heirs:
                self._pool.free(fork.pages)

    def check(self, live: Items[Sequence]) -> None:
        """Assert that only sequences which are not at their end wait, lead or inherit."""
        known = {*self._waiting, *self._forks}
        known.update(heir for heirs in self._waiting.values() for heir in heirs)
        assert known <= set(live), "a sequence that has ended is part of a fork"
        for fork in set(self._forks.values()):
            assert fork.heirs == {heir for heir, its in self._forks.items() if its is fork}

    def _leave(self, heir: Sequence, leader: Sequence) -> None:
        heirs = self._waiting[leader]
        heirs.remove(heir)
        heir.leader = None
        if not heirs:
            del self._waiting[leader]

    def _copies(self, pages: Items[int]) -> list[int]:
        copies = self._pool.allocate(len(pages))
        if copies:
            self._views.copy_in(copies, self._views.copy_out(pages, self._device))
        return copies
