"""Length: how many words, sentences or lines a text has."""

import re
from collections.abc import Callable
from typing import Final

_WORD: Final = re.compile(r"\w+(?:['’-]\w+)*")
# An end of a sentence is followed by white space or by nothing; 3.5 is no end.
_SENTENCE_END: Final = re.compile(r"[.!?。！？]+(?=[\s\"'”’)]|$)")


def words_of(text: str) -> list[str]:
    """The words of a text; an apostrophe or hyphen inside does not divide one."""
    return _WORD.findall(text)


def _sentences(text: str) -> int:
    """Sentences; words behind the last end count as one more."""
    pieces = _SENTENCE_END.split(text)
    return sum(1 for piece in pieces if words_of(piece))


def _lines(text: str) -> int:
    return sum(1 for line in text.splitlines() if line.strip())


UNITS: Final[dict[str, Callable[[str], int]]] = {
    "words": lambda text: len(words_of(text)),
    "sentences": _sentences,
    "lines": _lines,
}


def count_units(text: str, unit: str) -> int:
    """How many of one of UNITS the text has."""
    return UNITS[unit](text)
