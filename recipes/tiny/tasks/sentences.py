"""Plain English sentences without any meaning for the question: filler, and text to copy."""

import random
from collections.abc import Callable
from typing import Final

from recipes.tiny.words import (
    ADJECTIVES,
    ADVERBS,
    ANIMALS,
    CITIES,
    COLOURS,
    FRUITS,
    JOBS,
    NAMES,
    OBJECTS,
    PLACES,
    VERBS,
    WEEKDAYS,
)


def article(word: str) -> str:
    """The word behind its indefinite article.

    >>> article("owl"), article("young owl"), article("used bell")
    ('an owl', 'a young owl', 'a used bell')
    """
    return f"{'an' if word[0] in 'aeio' else 'a'} {word}"


def sentence(rng: random.Random) -> str:
    """One sentence of about ten words."""
    return rng.choice(_SHAPES)(rng.choice)


Pick = Callable[..., str]

_SHAPES: Final[tuple[Callable[[Pick], str], ...]] = (
    lambda c: f"The {c(ADJECTIVES)} {c(ANIMALS)} {c(VERBS)} the {c(OBJECTS)} near the {c(PLACES)}.",
    lambda c: f"{c(NAMES)} {c(VERBS)} {article(c(ADJECTIVES))} {c(OBJECTS)} {c(ADVERBS)}.",
    lambda c: f"The {c(JOBS)} from {c(CITIES)} {c(VERBS)} the {c(COLOURS)} {c(OBJECTS)}.",
    lambda c: f"On {c(WEEKDAYS)} {c(NAMES)} and {c(NAMES)} walk to the {c(PLACES)}.",
    lambda c: f"There is {article(c(ADJECTIVES))} {c(PLACES)} behind the {c(PLACES)}.",
    lambda c: f"{c(NAMES)} likes the {c(FRUITS)} and the {c(FRUITS)}, but not the {c(FRUITS)}.",
    lambda c: f"In {c(CITIES)} the {c(PLACES)} is {c(ADJECTIVES)} and {c(ADJECTIVES)}.",
    lambda c: f"The {c(OBJECTS)} and the {c(OBJECTS)} are on the {c(COLOURS)} table.",
    lambda c: f"{c(NAMES)} wants to see the {c(ADJECTIVES)} {c(ANIMALS)} in the {c(PLACES)}.",
    lambda c: f"Every {c(WEEKDAYS)} the {c(JOBS)} {c(VERBS)} {article(c(OBJECTS))}.",
    lambda c: f"Why is the {c(ANIMALS)} so {c(ADJECTIVES)} when it is in the {c(PLACES)}?",
    lambda c: (
        f"It was {article(c(ADJECTIVES))} day, and the {c(ANIMALS)} stayed in the {c(PLACES)}."
    ),
)
