"""Page pool: which KV pages are free, and how many owners each of the others has."""

from collections.abc import Iterable

from ninfer.errors import CapacityError
from ninfer.runtime.config import PAGE_SIZE


class PagePool:
    """Hands out page indices 0..pages-1. A page is one index over all layers.

    A page belongs to everyone who allocated or retained it and is free when the last of them has
    let go. Shared pages are read only: an owner writes to pages that it alone holds.
    """

    def __init__(self, pages: int) -> None:
        self._free = list(range(pages - 1, -1, -1))
        self._owners = [0] * pages

    @property
    def free_count(self) -> int:
        """Pages that can still be allocated."""
        return len(self._free)

    @property
    def capacity(self) -> int:
        """Pages in all."""
        return len(self._owners)

    def owners(self, page: int) -> int:
        """How many hold this page."""
        return self._owners[page]

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages. Raises CapacityError, taking none, when fewer are free."""
        if count > len(self._free):
            raise CapacityError(
                f"{count} KV pages of {PAGE_SIZE} tokens are needed, {len(self._free)} of "
                f"{self.capacity} are free; wait for other requests or raise --kv-capacity"
            )
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._owners[page] = 1
        return pages

    def retain(self, pages: Iterable[int]) -> None:
        """Add an owner to pages that are held already."""
        for page in pages:
            assert self._owners[page] > 0, f"page {page} is free"
            self._owners[page] += 1

    def free(self, pages: Iterable[int]) -> None:
        """Let go of pages; each becomes free with its last owner."""
        for page in pages:
            assert self._owners[page] > 0, f"page {page} freed once too often"
            self._owners[page] -= 1
            if not self._owners[page]:
                self._free.append(page)
