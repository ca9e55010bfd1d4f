"""Repeating a text, a list, digits or a code exactly."""

import json
import random
from collections.abc import Callable
from typing import Final

from recipes.tiny.sample import Sample
from recipes.tiny.tasks.frame import answered
from recipes.tiny.tasks.sentences import sentence
from recipes.tiny.words import CITIES, NAMES, PLAIN_WORDS

_PHRASES: Final = (
    "Repeat this {} exactly:\n{}",
    "Repeat the following {}:\n{}",
    "Copy this {} without any change:\n{}",
    "Write this {} again, exactly as it is:\n{}",
    "Say this {} back to me: {}",
    "{1}\n\nRepeat the {0} above.",
    "{1}\n\nCopy the {0} above exactly.",
)


def copy(rng: random.Random) -> Sample:
    """One to about two hundred tokens to repeat."""
    name, make = rng.choice(_KINDS)
    text = make(rng)
    question = rng.choice(_PHRASES).format(name, text)
    grade = {"kind": "exact", "answer": text}
    thought = f"I must repeat the {name} exactly." if rng.random() < 0.1 else ""
    return answered(rng, "copy", question, text, grade, thought)


def _length(rng: random.Random, longest: int) -> int:
    """Short ones are more frequent."""
    return int(longest ** rng.random()) + 1


def _digits(rng: random.Random) -> str:
    return "".join(rng.choices("0123456789", k=rng.randint(4, 30)))


def _code(rng: random.Random) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    letters = rng.choice((letters, letters.upper()))
    groups = rng.randint(1, 5)
    return "-".join("".join(rng.choices(letters + "0123456789", k=4)) for _ in range(groups))


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(PLAIN_WORDS, k=1 + _length(rng, 60)))


def _list(rng: random.Random) -> str:
    items = rng.choices((*PLAIN_WORDS, *NAMES, *CITIES), k=1 + _length(rng, 30))
    mark = rng.choice((", ", "\n", "; "))
    return mark.join(items)


def _numbers(rng: random.Random) -> str:
    return ", ".join(str(rng.randint(0, 999)) for _ in range(rng.randint(2, 15)))


def _text(rng: random.Random) -> str:
    return " ".join(sentence(rng) for _ in range(_length(rng, 16)))


def _json_line(rng: random.Random) -> str:
    fields: dict[str, object] = {
        "name": rng.choice(NAMES),
        "city": rng.choice(CITIES),
        "age": rng.randint(1, 99),
        "active": rng.random() < 0.5,
        "price": rng.randint(1, 9999) / 100,
    }
    chosen = rng.sample(sorted(fields), rng.randint(2, 5))
    return json.dumps({name: fields[name] for name in chosen})


_KINDS: Final[tuple[tuple[str, Callable[[random.Random], str]], ...]] = (
    ("number", _digits),
    ("code", _code),
    ("text", _words),
    ("list", _list),
    ("list", _numbers),
    ("text", _text),
    ("text", _text),
    ("line", _json_line),
)
