"""Sorting, filtering, reversing and counting lists of numbers and words."""

import random
from collections.abc import Sequence
from typing import Final

from recipes.tiny.sample import Sample
from recipes.tiny.tasks.frame import answered
from recipes.tiny.words import ANIMALS, CITIES, FRUITS, NAMES, PLAIN_WORDS

_WORD_POOLS: Final = (PLAIN_WORDS, NAMES, FRUITS, ANIMALS, CITIES)
# How items stand in the question; answers use the same.
_SEPARATORS: Final = (", ", ", ", ", ", "\n", "; ", " ")
_FRAMES: Final = (
    "{task}: {items}",
    "{task}:\n{items}",
    "{items}\n\n{task}.",
    "List: {items}\n{task}.",
)

_SORTS: Final = {
    # Words that ask for it: numbers, whether the largest comes first.
    "up": (
        "Sort these numbers in ascending order",
        "Sort from smallest to largest",
        "Order the numbers upward",
        "Sort the numbers, smallest first",
    ),
    "down": (
        "Sort these numbers in descending order",
        "Sort from largest to smallest",
        "Order the numbers downward",
        "Sort the numbers, largest first",
    ),
    "a-z": (
        "Sort these words alphabetically",
        "Sort the words from A to Z",
        "Put the words in alphabetical order",
    ),
    "z-a": (
        "Sort these words in reverse alphabetical order",
        "Sort the words from Z to A",
    ),
}
_REVERSALS: Final = (
    "Reverse this list",
    "Write the list backwards",
    "Give the list in reverse order",
)
_COUNTS: Final = (
    "How many items are in this list",
    "Count the items of this list",
    "How long is this list",
)


def lists(rng: random.Random) -> Sample:
    """Five to twelve items."""
    make = rng.choices((_sorted, _filtered, _reversed, _counted), (4, 3, 1.5, 1.5))[0]
    return make(rng)


def _sorted(rng: random.Random) -> Sample:
    if rng.random() < 0.5:
        items = _numbers(rng)
        order = rng.choice(("up", "down"))
        answer = sorted(items, key=int, reverse=order == "down")
    else:
        items = _words(rng)
        order = rng.choice(("a-z", "a-z", "z-a"))
        answer = sorted(items, key=str.lower, reverse=order == "z-a")
    thought = f"There are {len(items)} items, first {answer[0]}, last {answer[-1]}."
    return _asked(rng, rng.choice(_SORTS[order]), items, answer, thought)


def _filtered(rng: random.Random) -> Sample:
    kind = rng.choice(("even", "odd", "greater", "less", "letter", "letter", "length"))
    if kind == "letter":
        items = _words(rng)
        letter = rng.choice(items)[0]
        keep = [item[0] == letter for item in items]
        task = f"Keep only the words that start with {letter}"
    elif kind == "length":
        items = _words(rng)
        length = len(rng.choice(items))
        keep = [len(item) == length for item in items]
        task = f"Keep only the words with exactly {length} letters"
    else:
        items = _numbers(rng)
        task, keep = _numeric(rng, kind, items)
    answer = [item for item, kept in zip(items, keep, strict=True) if kept]
    marks = [f"{item} {'yes' if kept else 'no'}" for item, kept in zip(items, keep, strict=True)]
    if not answer:
        return _filtered(rng)
    return _asked(rng, task, items, answer, ", ".join(marks) + ".")


def _numeric(rng: random.Random, kind: str, items: Sequence[str]) -> tuple[str, list[bool]]:
    values = [int(item) for item in items]
    if kind in ("even", "odd"):
        wanted = int(kind == "odd")
        return f"Keep only the {kind} numbers", [value % 2 == wanted for value in values]
    bound = rng.choice(values)
    if kind == "greater":
        return f"Keep only the numbers greater than {bound}", [value > bound for value in values]
    return f"Keep only the numbers less than {bound}", [value < bound for value in values]


def _reversed(rng: random.Random) -> Sample:
    items = rng.choice((_numbers, _words))(rng)
    answer = items[::-1]
    thought = f"The last item is {answer[0]}, so it comes first."
    return _asked(rng, rng.choice(_REVERSALS), items, answer, thought)


def _counted(rng: random.Random) -> Sample:
    items = rng.choice((_numbers, _words))(rng)
    separator = rng.choice(_SEPARATORS)
    thought = ""
    if rng.random() < 0.5:
        thought = "\n".join(f"{place}: {item}" for place, item in enumerate(items, 1))
    task, count = rng.choice(_COUNTS), len(items)
    listed = separator.join(items)
    if task.startswith("How"):
        question = rng.choice((f"{task}: {listed}", f"{listed}\n\n{task}?"))
    else:
        question = rng.choice((f"{task}: {listed}", f"{listed}\n\n{task}."))
    answer = f"There are {count} items."
    return answered(rng, "lists", question, answer, {"kind": "number", "answer": count}, thought)


def _asked(
    rng: random.Random, task: str, items: Sequence[str], answer: Sequence[str], thought: str
) -> Sample:
    separator = rng.choice(_SEPARATORS)
    if rng.random() >= 0.15:
        thought = ""
    question = rng.choice(_FRAMES).format(task=task, items=separator.join(items))
    grade = {"kind": "list", "items": list(answer), "separator": separator}
    return answered(rng, "lists", question, separator.join(answer), grade, thought)


def _numbers(rng: random.Random) -> list[str]:
    """Different numbers of up to three digits."""
    highest = rng.choice((20, 100, 100, 1000))
    return [str(value) for value in rng.sample(range(highest), rng.randint(5, 12))]


def _words(rng: random.Random) -> list[str]:
    pool = sorted(set(rng.choice(_WORD_POOLS)))
    return rng.sample(pool, rng.randint(5, min(12, len(pool))))
