"""Page pool: which KV pages are free and which belong to a sequence."""

from collections.abc import Iterable

from ninfer.errors import ContextError
from ninfer.runtime.config import PAGE_SIZE


class PagePool:
    """Hands out page indices 0..pages-1; a page belongs to one sequence until it is freed."""

    def __init__(self, pages: int) -> None:
        self._free = list(range(pages - 1, -1, -1))
        self._pages = pages

    @property
    def free_count(self) -> int:
        """Pages that can still be allocated."""
        return len(self._free)

    @property
    def capacity(self) -> int:
        """Pages in all."""
        return self._pages

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages. Raises ContextError, taking none, when fewer are free."""
        if count > len(self._free):
            raise ContextError(
                f"{count} KV pages of {PAGE_SIZE} tokens are needed, {len(self._free)} of "
                f"{self._pages} are free; raise --kv-capacity",
                prompt_tokens=count * PAGE_SIZE,
                limit=self._pages * PAGE_SIZE,
            )
        return [self._free.pop() for _ in range(count)]

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back; each must be allocated."""
        returned = list(pages)
        assert not set(returned) & set(self._free), "page freed twice"
        self._free.extend(reversed(returned))
