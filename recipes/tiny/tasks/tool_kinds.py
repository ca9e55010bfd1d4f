"""What a tool is, and the kinds of parameters and values that the pool is made of."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recipes.tiny.words import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    COLOURS,
    FRUITS,
    NAMES,
    OBJECTS,
    PLACES,
    WEEKDAYS,
)

Draw = Callable[[random.Random], Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its JSON Schema, how values are drawn, other names that it may take.

    An optional one is told in a request by `phrase`, in which {} is the value.
    """

    name: str
    schema: Mapping[str, Any]
    draw: Draw
    others: tuple[str, ...]
    phrase: str = ""

    @property
    def required(self) -> bool:
        """Whether every request gives it."""
        return not self.phrase


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `requests` and `answer` are templates over parameters; `answer` over `results` too.

    Requests name every parameter; optional ones stand right behind the word before them.
    """

    name: str
    others: tuple[str, ...]
    description: str
    parameters: tuple[Parameter, ...]
    requests: tuple[str, ...]
    answer: str
    results: Mapping[str, Draw] = field(default_factory=dict)


def pick(*items: Any) -> Draw:
    """One of the items."""
    return lambda rng: rng.choice(items)


def whole(low: int, high: int) -> Draw:
    """A whole number between these."""
    return lambda rng: rng.randint(low, high)


def several(items: Sequence[str], low: int = 2, high: int = 4) -> Draw:
    """A few different items."""
    return lambda rng: rng.sample(sorted(set(items)), rng.randint(low, high))


def message(rng: random.Random) -> str:
    """Something to tell somebody."""
    return rng.choice(
        (
            f"the {rng.choice(OBJECTS)} is in the {rng.choice(PLACES)}",
            f"I am at the {rng.choice(PLACES)}",
            f"see you on {rng.choice(WEEKDAYS)}",
            f"the {rng.choice(ANIMALS)} is {rng.choice(ADJECTIVES)}",
            f"please bring the {rng.choice(OBJECTS)}",
            f"I will be there at {rng.randint(1, 12)}",
        )
    )


def topic(rng: random.Random) -> str:
    """Something to look for."""
    return rng.choice(
        (
            f"{rng.choice(ADJECTIVES)} {rng.choice(ANIMALS)}",
            f"{rng.choice(PLACES)} in {rng.choice(CITIES)}",
            f"how to clean a {rng.choice(COLOURS)} {rng.choice(OBJECTS)}",
            f"{rng.choice(FRUITS)} cake",
        )
    )


def file(rng: random.Random) -> str:
    """A path."""
    folder = rng.choice(("notes", "data", "home", "docs", "tmp"))
    return f"{folder}/{rng.choice(OBJECTS)}.{rng.choice(('txt', 'md', 'csv', 'json'))}"


def address(rng: random.Random) -> str:
    """An email address."""
    return f"{rng.choice(NAMES).lower()}@{rng.choice(('mail', 'post', 'work'))}.com"


def digits(rng: random.Random) -> str:
    """A telephone number."""
    return "".join(rng.choices("0123456789", k=6))


STRING: Final = {"type": "string"}
INTEGER: Final = {"type": "integer"}
NUMBER: Final = {"type": "number"}
BOOLEAN: Final = {"type": "boolean"}
STRINGS: Final = {"type": "array", "items": {"type": "string"}}
PERSON: Final = {
    "type": "object",
    "properties": {"age": {"type": "integer"}, "city": {"type": "string"}},
    "required": ["age", "city"],
}


def enum(*values: str) -> dict[str, Any]:
    """The schema of a string with these values."""
    return {"type": "string", "enum": list(values)}


def one_of(name: str, others: tuple[str, ...], *values: str, phrase: str = "") -> Parameter:
    """A parameter with these values."""
    return Parameter(name, enum(*values), pick(*values), others, phrase)


CITY: Final = Parameter("city", STRING, pick(*CITIES), ("town", "place", "location"))
DAY: Final = one_of("day", ("weekday", "date"), *WEEKDAYS)
PATH: Final = Parameter("path", STRING, file, ("file", "filename", "file_path"))
ITEM: Final = Parameter("item", STRING, pick(*OBJECTS), ("product", "article", "thing"))
NAME: Final = Parameter("name", STRING, pick(*NAMES), ("person", "who", "full_name"))
TEXT: Final = Parameter("text", STRING, message, ("message", "content", "body"))
ROOM: Final = Parameter(
    "room", STRING, pick("kitchen", "cellar", "garden", "office"), ("place", "where", "location")
)
