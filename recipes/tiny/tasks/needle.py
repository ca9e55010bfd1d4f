"""Finding one fact again among many sentences and among other facts of the same kind."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from recipes.tiny.sample import Sample
from recipes.tiny.tasks.frame import answered
from recipes.tiny.tasks.sentences import sentence
from recipes.tiny.words import ANIMALS, CITIES, COLOURS, FRUITS, JOBS, NAMES, OBJECTS

# Tokens of the average filler sentence in the shipped tokenizer; a test measures it.
TOKENS_PER_SENTENCE: Final = 10.35
_FRAME_TOKENS: Final = 40  # system text, instructions and question


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of fact: what it is about, its values, how it is told, asked and answered."""

    keys: tuple[str, ...]
    value: Callable[[random.Random], str]
    fact: str
    question: str
    answer: str


def _number(rng: random.Random) -> str:
    return str(rng.randint(1000, 9999))


_BOXES: Final = tuple(f"{colour} {thing}" for colour in COLOURS for thing in ("box", "door", "bag"))

_KINDS: Final = (
    _Kind(
        _BOXES,
        _number,
        "The code of the {key} is {value}.",
        "What is the code of the {key}?",
        "The code of the {key} is {value}.",
    ),
    _Kind(
        tuple(NAMES),
        lambda rng: rng.choice(OBJECTS),
        "The secret word of {key} is {value}.",
        "What is the secret word of {key}?",
        "The secret word of {key} is {value}.",
    ),
    _Kind(
        tuple(NAMES),
        lambda rng: rng.choice(CITIES),
        "{key} was born in {value}.",
        "Where was {key} born?",
        "{key} was born in {value}.",
    ),
    _Kind(
        tuple(FRUITS),
        lambda rng: str(rng.randint(2, 99)),
        "One {key} costs {value} coins here.",
        "How many coins does one {key} cost?",
        "One {key} costs {value} coins.",
    ),
    _Kind(
        tuple(JOBS),
        _number,
        "The telephone number of the {key} is {value}.",
        "What is the telephone number of the {key}?",
        "The telephone number of the {key} is {value}.",
    ),
    _Kind(
        tuple(ANIMALS),
        lambda rng: rng.choice(NAMES),
        "The {key} with the ribbon is called {value}.",
        "What is the {key} with the ribbon called?",
        "The {key} with the ribbon is called {value}.",
    ),
)

_INTRODUCTIONS: Final = ("Read this text.", "Here is a text.", "Text:", "Read carefully.")
_SHORT: Final = " Answer with the value only."


def needle(rng: random.Random, tokens: int | None = None) -> Sample:
    """A prompt of about `tokens` tokens; by default 100 to 8,000, most of them below 2,000."""
    wanted = tokens or _length(rng)
    kind = rng.choice(_KINDS)
    facts = _facts(rng, kind, most=max(2, min(8, wanted // 40)))
    key, value = rng.choice(facts)
    count = round((wanted - _FRAME_TOKENS) / TOKENS_PER_SENTENCE - len(facts))
    lines = [sentence(rng) for _ in range(max(1, count))]
    for other, told in facts:
        lines.insert(rng.randint(0, len(lines)), kind.fact.format(key=other, value=told))
    short = rng.random() < 0.4
    question = kind.question.format(key=key) + (_SHORT if short else "")
    answer = value if short else kind.answer.format(key=key, value=value)
    text = f"{rng.choice(_INTRODUCTIONS)}\n\n{_paragraphs(rng, lines)}\n\n{question}"
    told = kind.fact.format(key=key, value=value)
    thought = f'The text says: "{told}"' if rng.random() < 0.15 else ""
    accepted = {value, value + ".", kind.answer.format(key=key, value=value), told}
    grade = {"kind": "one_of", "answers": sorted(accepted)}
    return answered(rng, "needle", text, answer, grade, thought)


def _length(rng: random.Random) -> int:
    low, high = (100, 2000) if rng.random() < 0.88 else (2000, 8000)
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def _facts(rng: random.Random, kind: _Kind, most: int) -> list[tuple[str, str]]:
    """Different keys with different values."""
    keys = rng.sample(kind.keys, rng.randint(2, most))
    values: list[str] = []
    while len(values) < len(keys):
        value = kind.value(rng)
        if value not in values:
            values.append(value)
    return list(zip(keys, values, strict=True))


def _paragraphs(rng: random.Random, lines: list[str]) -> str:
    parts: list[str] = []
    while lines:
        size = rng.randint(4, 12)
        parts.append(" ".join(lines[:size]))
        lines = lines[size:]
    return "\n".join(parts)
