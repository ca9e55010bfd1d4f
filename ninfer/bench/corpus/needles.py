"""Long texts around one sentence that has to be found: plain English, no sentence twice."""

import random
from typing import Final

# Tokens of our filler under tokenizers of this family; small ones take more for the same text.
CHARACTERS_PER_TOKEN: Final = 4.6

_WHO: Final = (
    *("The gardener", "A young clerk", "The old captain", "My neighbour", "The painter"),
    *("Our teacher", "A tall stranger", "The night guard", "The miller", "A quiet nurse"),
)
_DID: Final = (
    *("carried", "described", "repaired", "sold", "forgot", "measured", "counted", "hid"),
    *("borrowed", "cleaned", "painted", "weighed", "wrapped", "found"),
)
_WHAT: Final = (
    *("a box of copper nails", "the second ladder", "three wet umbrellas", "an unsigned letter"),
    *("the broken clock", "a basket of pears", "the harbour map", "a bundle of rope"),
    *("the blue lantern", "a set of brass weights", "the torn curtain", "a bag of flour"),
)
_WHEN: Final = (
    *("before the market opened", "while the rain went on", "after a long winter"),
    *("on the way to the station", "during the second shift", "as the ferry left"),
    *("when the lamps were lit", "shortly after noon", "between two trains"),
)
_NUMBERED: Final = "in the year"


def needle_text(needle: str, tokens: int, position: float) -> str:
    """About `tokens` tokens of filler with `needle` as a sentence of its own at 0..1 of it."""
    draw = random.Random(tokens)
    wanted = int(tokens * CHARACTERS_PER_TOKEN)
    before, size = int(wanted * position), 0
    sentences: list[str] = []
    placed = False
    while size < wanted:
        if not placed and size >= before:
            sentences.append(needle)
            placed = True
        sentence = _sentence(draw, len(sentences))
        sentences.append(sentence)
        size += len(sentence) + 1
    return _paragraphs(sentences if placed else [*sentences, needle])


def _sentence(draw: random.Random, number: int) -> str:
    parts = (draw.choice(_WHO), draw.choice(_DID), draw.choice(_WHAT), draw.choice(_WHEN))
    return f"{' '.join(parts)}, {_NUMBERED} {1100 + number % 900}, page {number}."


def _paragraphs(sentences: list[str]) -> str:
    return "\n\n".join(" ".join(sentences[n : n + 8]) for n in range(0, len(sentences), 8))
