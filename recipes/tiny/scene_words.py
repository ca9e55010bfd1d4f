"""Wordings of what is seen: phrases for shapes and numbers, and a question with its one answer."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from recipes.tiny.scene_layout import Look
from recipes.tiny.scene_shapes import COLOURS, KINDS, Scene

NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six")


@dataclass(frozen=True, slots=True)
class Case:
    """A question about scenes and its answer.

    `views` has the scenes of each image (one) or video (before and after the change).
    """

    views: tuple[tuple[Scene, ...], ...]
    question: str
    answer: str
    grade: Mapping[str, Any]


def exact(views: Iterable[tuple[Scene, ...]], question: str, answer: str) -> Case:
    """A case with a single right answer."""
    return Case(tuple(views), question, answer, {"kind": "exact", "answer": answer})


def ask(rng: Random, templates: Iterable[str], **words: str) -> str:
    """One of the templates, filled in; sometimes as people type in a hurry."""
    question = rng.choice(tuple(templates)).format(**words)
    if rng.random() < 0.1:
        question = question.lower().rstrip("?.")
    return question


def plural(kind: str) -> str:
    """Several of a kind: "squares"."""
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


def named(look: Look) -> str:
    """Colour and kind: "red circle"."""
    return f"{look.colour} {look.kind}"


def one(look: Look) -> str:
    """With the indefinite article: "an orange star"."""
    article = "an" if look.colour[0] in "aeiou" else "a"
    return f"{article} {named(look)}"


def groups(looks: Iterable[Look]) -> list[str]:
    """Equal looks together, in the order of COLOURS, then of KINDS: "a red circle"."""
    colours = list(COLOURS)
    counts = sorted(
        Counter(looks).items(),
        key=lambda entry: (colours.index(entry[0].colour), KINDS.index(entry[0].kind)),
    )
    return [
        one(look) if count == 1 else f"{NUMBERS[count]} {look.colour} {plural(look.kind)}"
        for look, count in counts
    ]


def listed(parts: list[str]) -> str:
    """Joined as in a sentence: "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
