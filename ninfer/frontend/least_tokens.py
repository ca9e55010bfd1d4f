"""A constraint that keeps an answer from ending before it has some number of tokens."""

from collections.abc import Iterable, Sequence
from typing import Final

_BITS: Final = 32


class LeastTokens:
    """`TokenConstraint` under which no id of `stop_ids` comes among the first `least` tokens."""

    def __init__(self, least: int, size: int, stop_ids: Iterable[int]) -> None:
        """`size` is the number of addressable ids."""
        self._least: Final = least
        self._stop_ids: Final = frozenset(stop_ids)
        words = -(-size // _BITS)
        every = (1 << size) - 1
        stops = sum(1 << token_id for token_id in self._stop_ids)
        self._free: Final = every.to_bytes(words * 4, "little")
        self._early: Final = (every & ~stops).to_bytes(words * 4, "little")
        self._taken = 0
        self._finished = False

    @property
    def is_finished(self) -> bool:
        """Whether a stop id was taken."""
        return self._finished

    @property
    def may_stop(self) -> bool:
        """Whether a stop id may come next."""
        return not self._finished and self._taken >= self._least

    def allowed(self) -> bytes:
        """See `TokenConstraint.allowed`."""
        return self._mask(self._taken)

    def advance(self, token_id: int) -> bool:
        """See `TokenConstraint.advance`."""
        if self._finished:
            return False
        if token_id in self._stop_ids:
            if self._taken < self._least:
                return False
            self._finished = True
        self._taken += 1
        return True

    def rollback(self, count: int) -> None:
        """See `TokenConstraint.rollback`."""
        self._taken -= count
        self._finished = self._finished and not count

    def allowed_ahead(self, drafts: Sequence[int]) -> list[bytes]:
        """See `TokenConstraint.allowed_ahead`."""
        masks = [self._mask(self._taken)]
        for place, draft in enumerate(drafts, self._taken):
            if draft in self._stop_ids:
                break
            masks.append(self._mask(place + 1))
        return masks

    def fork(self) -> "LeastTokens":
        """An independent copy."""
        copy = object.__new__(LeastTokens)
        copy.__dict__.update(self.__dict__)
        return copy

    def _mask(self, taken: int) -> bytes:
        return self._early if taken < self._least else self._free
