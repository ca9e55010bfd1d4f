"""A tokenizer's ids as bytes for the grammar library, and constant masks over them."""

from collections.abc import Iterable
from functools import cache
from typing import Final

import llguidance
import numpy as np
from numpy.typing import NDArray

from ninfer.errors import ArtifactError
from ninfer.frontend.reasoning import CLOSE_TAG
from ninfer.frontend.tokenizer import Tokenizer

_TAG: Final = CLOSE_TAG.encode()
# Depth of a thought that is closed: the whole tag was read.
CLOSED: Final = len(_TAG)
# The grammar library takes tokens with this first byte for control tokens, which no text matches.
_CONTROL: Final = b"\xff"
# Breaks what looks like a special token; a character that no text of a grammar needs.
_MARK: Final = "\U000f0000"


class Vocabulary:
    """Ids of one tokenizer as constraints see them. Immutable; shared by all constraints.

    Text never matches a special token; the tags of thoughts and tools are ordinary text. `stop_ids`
    end an answer. Building takes about a second for 250,000 ids. Raises ArtifactError without a
    stop id, since a constrained answer could not end.
    """

    def __init__(self, tokenizer: Tokenizer, stop_ids: tuple[int, ...]) -> None:
        if not stop_ids:
            raise ArtifactError("the tokenizer has no stop id, so no constrained answer could end")
        self.size: Final = tokenizer.addressable
        self.stop_ids: Final = frozenset(stop_ids)
        self._bytes: Final = [tokenizer.token_bytes(index) for index in range(self.size)]
        special = self.stop_ids.union(tokenizer.special.values())
        words = _Words(tokenizer, self._bytes, special, stop_ids[0])
        self.backend: Final = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(words), eos_token=list(stop_ids)
        )
        self._mask_bytes: Final = (self.size + 31) // 32 * 4
        self._plain: Final = self._bits(range(self.size)) & ~self._bits(special)
        self._stops: Final = self._bits(stop_ids)
        self._closers: Final = [index for index, text in enumerate(self._bytes) if b">" in text]
        self.thought_mask: Final = cache(self._thought_mask)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of an id below `size`."""
        return self._bytes[token_id]

    def holds(self, mask: bytes, token_id: int) -> bool:
        """Whether a mask allows an id; no mask allows one outside the vocabulary."""
        return 0 <= token_id < self.size and bool(mask[token_id >> 3] >> (token_id & 7) & 1)

    def answer_mask(self, mask: bytes, may_stop: bool) -> bytes:
        """The library's mask without special tokens, and with the stop ids if `may_stop`."""
        words = np.frombuffer(mask, np.uint8, self._mask_bytes) & self._plain
        return (words | self._stops if may_stop else words).tobytes()

    def _thought_mask(self, depth: int, may_stop: bool) -> bytes:
        """The ids that may come next in a thought of which `depth` bytes of the closing tag stand.

        All but stop ids, which need `may_stop`, and ids that close the thought and go on with
        text, since a grammar cannot read half a token.
        """
        crossing = [
            index for index in self._closers if thought_depth(depth, self._bytes[index]) is None
        ]
        words = self._bits(range(self.size)) & ~self._bits(crossing)
        return (words if may_stop else words & ~self._stops).tobytes()

    def _bits(self, ids: Iterable[int]) -> NDArray[np.uint8]:
        flags = np.zeros(self._mask_bytes * 8, np.bool_)
        flags[list(ids)] = True
        return np.packbits(flags, bitorder="little")


def thought_depth(depth: int, data: bytes) -> int | None:
    """How many bytes of the closing tag stand at the end, `data` having followed `depth` of them.

    CLOSED if the tag is complete with at most white space behind it, None if text stands there.
    """
    text = _TAG[:depth] + data
    _, tag, rest = text.partition(_TAG)
    if tag:
        return None if rest.strip() else CLOSED
    # The tag's first byte stands in it once, so only the last one can begin it.
    start = text.rfind(_TAG[:1])
    return len(text) - start if start >= 0 and _TAG.startswith(text[start:]) else 0


class _Words:
    """The form in which the grammar library takes a tokenizer."""

    bos_token_id = None

    def __init__(
        self, tokenizer: Tokenizer, texts: list[bytes], special: frozenset[int], stop_id: int
    ) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = stop_id
        self.special_token_ids: list[int] = []
        self.tokens = [
            # A byte that no UTF-8 text holds would be read as the beginning of a control token.
            _CONTROL + text if index in special else b"" if text[:1] == _CONTROL else text
            for index, text in enumerate(texts)
        ]

    def __call__(self, text: bytes) -> list[int]:
        """Ids of plain text; what looks like a special token is none here."""
        broken = self._tokenizer.breaks(text.decode(), _MARK)
        return self._tokenizer.encode(broken, mark=_MARK)
