"""Page pool: which KV pages are free and which belong to a sequence."""

from collections.abc import Iterable

from ninfer.errors import CapacityError
from ninfer.runtime.config import PAGE_SIZE


class PagePool:
    """Hands out page indices 0..pages-1; a page belongs to one sequence until it is freed."""

    def __init__(self, pages: int) -> None:
        self._free = list(range(pages - 1, -1, -1))
        self._taken = [False] * pages

    @property
    def free_count(self) -> int:
        """Pages that can still be allocated."""
        return len(self._free)

    @property
    def capacity(self) -> int:
        """Pages in all."""
        return len(self._taken)

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages. Raises CapacityError, taking none, when fewer are free."""
        if count > len(self._free):
            raise CapacityError(
                f"{count} KV pages of {PAGE_SIZE} tokens are needed, {len(self._free)} of "
                f"{self.capacity} are free; wait for other requests or raise --kv-capacity"
            )
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._taken[page] = True
        return pages

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back; each must be allocated."""
        for page in pages:
            assert self._taken[page], f"page {page} freed twice"
            self._taken[page] = False
            self._free.append(page)
