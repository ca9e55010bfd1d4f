"""A limit on the tokens of a thought: what closes it, and when."""

from typing import Final

from ninfer.frontend.reasoning import CLOSE_TAG
from ninfer.frontend.tokenizer import Tokenizer

# What the chat template puts between a thought and its answer.
CLOSING: Final = f"\n{CLOSE_TAG}\n\n"
_CLOSE: Final = CLOSE_TAG.encode()
_CALL: Final = b"<tool_call>"
_FUNCTION: Final = b"<function="
# White space that may stand between the two tags of a call.
_MOST_SPACE: Final = 16
# Bytes in which an unfinished tag or call fits.
_TAIL: Final = len(_CALL) + _MOST_SPACE + len(_FUNCTION)
# Tokens that an unfinished character may still take when the budget is used up.
_GRACE: Final = 3


class ThinkingBudget:
    """`TokenForcer` that closes a thought of `budget` tokens with CLOSING.

    A thought that closes itself before is left alone, and so is one in which a tool call has begun:
    what follows is no thought any more. Behind `<tool_call>` the budget waits until it is certain
    whether `<function=` follows, and inside a character for its end. Raises GenerationError for ids
    outside the vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer, budget: int) -> None:
        self._tokenizer = tokenizer
        self._budget = budget
        self._closing: Final = tuple(tokenizer.encode(CLOSING))
        self._inserted = 0  # ids of the closing that have come
        self._count = 0  # tokens of the thought
        self._tail = b""
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
        text = self._tail + self._tokenizer.token_bytes(token_id)
        self.is_done = _CLOSE in text or _has_call(text)
        self._tail = text[-_TAIL:]

    def _waits(self) -> bool:
        if _may_be_call(self._tail):
            return True
        return self._count < self._budget + _GRACE and _ends_inside_character(self._tail)


def _has_call(text: bytes) -> bool:
    """Whether both opening tags of a call stand in the text, with white space between at most."""
    _, *rests = text.split(_CALL)
    return any(_behind_space(rest).startswith(_FUNCTION) for rest in rests)


def _may_be_call(text: bytes) -> bool:
    """Whether the text ends behind the tag of a call, before it is clear whether one follows."""
    _, tag, rest = text.rpartition(_CALL)
    return bool(tag) and _FUNCTION.startswith(_behind_space(rest))


def _behind_space(rest: bytes) -> bytes:
    text = rest.lstrip()
    return text if len(rest) - len(text) <= _MOST_SPACE else rest


def _ends_inside_character(text: bytes) -> bool:
    """Whether the last bytes begin a UTF-8 character that needs more of them."""
    for length in range(1, min(len(text), 3) + 1):
        byte = text[-length]
        if byte >= 0xC0:
            return length < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
        if byte < 0x80:
            return False
    return False
