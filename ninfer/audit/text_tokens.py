"""Text to tokens of our own, the same for every server: words, digits, marks, Han characters."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from ninfer.audit.cycles import Symbols

# Scripts that have no spaces between words.
_SINGLE: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
# A word without end is cut, so that a loop inside it shows.
_TOKEN: Final = re.compile(rf"[{_SINGLE}]|[^\W\d{_SINGLE}]{{1,16}}|\d|\n|[^\S\n]+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class TextTokens:
    """Tokens of a text as numbers, and where each begins; `starts` has the text's length behind."""

    symbols: Symbols
    starts: Symbols

    def __len__(self) -> int:
        return len(self.symbols)


def tokens_of(text: str) -> TextTokens:
    """Cut a text. All of its characters belong to a token."""
    pieces = _TOKEN.findall(text)
    numbers: dict[str, int] = {}
    symbols = np.fromiter(
        (numbers.setdefault(piece, len(numbers)) for piece in pieces), np.int64, len(pieces)
    )
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    return TextTokens(symbols, starts)
