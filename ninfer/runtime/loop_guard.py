"""Loop guard: says when a sequence does nothing but repeat itself."""

from typing import Final

import numpy as np

# Longest cycle that is found.
PERIODS: Final = 256
# A cycle has stood so many times, and takes so many tokens in all: lists, tables and rows of dashes
# that people ask for are shorter, and text that a model repeats so often it repeats for ever.
COPIES: Final = 4
TOKENS: Final = 256
# Tokens between two moves of the window in its buffer.
_BUFFER: Final = 16 * PERIODS


class LoopGuard:
    """Finds the first token at which the newest ones are COPIES cycles of 1..PERIODS ids or more,
    of TOKENS ids or more in all.

    Each token costs a few operations on vectors of PERIODS numbers, however long the sequence is.
    """

    def __init__(self) -> None:
        self._ids = np.full(_BUFFER, -1, dtype=np.int64)
        self._end = PERIODS  # of what was written
        # How many of the newest ids equal the one that stands 1..PERIODS places before it.
        self._equal = np.zeros(PERIODS, dtype=np.int64)
        periods = np.arange(1, PERIODS + 1)
        self._needed: Final = np.maximum(COPIES * periods, TOKENS) - periods

    def advance(self, token_id: int) -> bool:
        """Take the next token; True when it completes a cycle."""
        if self._end == _BUFFER:
            self._ids[:PERIODS] = self._ids[-PERIODS:]
            self._end = PERIODS
        window = self._ids[self._end - PERIODS : self._end][::-1]  # newest first
        self._equal += 1
        self._equal *= window == token_id
        self._ids[self._end] = token_id
        self._end += 1
        return bool((self._equal >= self._needed).any())
