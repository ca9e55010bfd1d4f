"""A limit on the tokens of a thought: what closes it, and when."""

from collections.abc import Collection
from typing import Final

from ninfer.frontend.detokenizer import Detokenizer
from ninfer.frontend.reasoning import CLOSE_TAG, ReasoningSplitter
from ninfer.frontend.tokenizer import Tokenizer

# What the chat template puts between a thought and its answer.
CLOSING: Final = f"\n{CLOSE_TAG}\n\n"
# Tokens that an unfinished character may still take when the budget is used up.
_GRACE: Final = 3


class ThinkingBudget:
    """`TokenForcer` that closes a thought of `budget` tokens with CLOSING.

    A thought that closes itself before is left alone, and so is one in which a call of one of
    `tools` (the names) has begun: what follows is no thought any more. Behind `<tool_call>` the
    budget waits until it is certain whether a call follows, and inside a character for its end.
    Where a thought ends is what the answer's `ReasoningSplitter` says. Raises GenerationError for
    ids outside the vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer, budget: int, tools: Collection[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._budget = budget
        self._closing: Final = tuple(tokenizer.encode(CLOSING))
        self._inserted = 0  # ids of the closing that have come
        self._count = 0  # tokens of the thought
        self._detokenizer = Detokenizer()
        self._splitter = ReasoningSplitter(True, tools)
        self.is_done = False

    def forced(self) -> int | None:
        """See `TokenForcer.forced`."""
        if self.is_done:
            return None
        is_due = self._count >= self._budget and not self._waits()
        return self._closing[self._inserted] if self._inserted or is_due else None

    def advance(self, token_id: int) -> None:
        """See `TokenForcer.advance`."""
        if self.is_done:
            return
        forced = self.forced()
        if forced is not None:
            assert token_id == forced
            self._inserted += 1
            self.is_done = self._inserted == len(self._closing)
            return
        self._count += 1
        self._splitter.feed(self._detokenizer.feed(self._tokenizer.token_bytes(token_id)))
        self.is_done = not self._splitter.in_reasoning

    def _waits(self) -> bool:
        if self._splitter.may_be_call:
            return True
        return self._count < self._budget + _GRACE and self._detokenizer.is_inside_character
