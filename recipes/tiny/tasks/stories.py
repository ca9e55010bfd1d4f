"""Short stories in a requested number of parts about a given hero, place and thing."""

import random
from dataclasses import dataclass
from typing import Final

from recipes.tiny.sample import Sample
from recipes.tiny.tasks.frame import answered, maybe
from recipes.tiny.tasks.sentences import article
from recipes.tiny.words import ANIMALS, JOBS, NAMES, OBJECTS, PLACES, words

END: Final = "The end."
_MOODS: Final = words("small young brave kind quiet happy old clever friendly")
_WEATHER: Final = words("sunny rainy windy cold warm dark bright")

# Each sentence of a story is drawn from such a tuple.
_Choice = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Plot:
    """Sentences of the first part, of the parts between in their order, and of the last part."""

    first: tuple[_Choice, ...]
    middle: tuple[tuple[_Choice, ...], ...]
    last: tuple[_Choice, ...]


_HERO: Final[_Choice] = (
    "Once there was {mood_kind} named {hero}.",
    "{hero} was {mood_kind}.",
    "This is the story of {mood_kind} named {hero}.",
)
_HOME: Final[_Choice] = (
    "{hero} lived near the {place}.",
    "Every day {hero} walked to the {place}.",
    "The {place} was a {weather} place, and {hero} loved it.",
    "{hero} knew every corner of the {place}.",
)
_FRIEND: Final[_Choice] = (
    "On the way {hero} met {friend} the {other}.",
    "Then {friend} the {other} came along.",
    "Near the {place} stood {friend} the {other}.",
)

_LOST: Final = _Plot(
    first=(
        _HERO,
        _HOME,
        (
            "One {weather} morning the {object} was gone.",
            "But one {weather} day {hero} lost the {object}.",
            "One evening {hero} could not find the {object}.",
        ),
    ),
    middle=(
        (
            (
                "{hero} looked behind every tree and under every stone.",
                "{hero} searched the whole {place}.",
            ),
            ("There was nothing.", "But the {object} was not there.", "It took a long time."),
        ),
        (
            _FRIEND,
            (
                '"Have you seen my {object}?" asked {hero}.',
                '"I have lost my {object}," said {hero}.',
            ),
            ('"No, but I will help you," said {friend}.', '"Let us look together," said {friend}.'),
        ),
        (
            (
                "Then they heard a strange sound.",
                "Soon they saw small steps in the sand.",
                "Suddenly a light was shining far away.",
            ),
            (
                "They followed it slowly.",
                "{hero} was not afraid.",
                "They ran as fast as they could.",
            ),
        ),
    ),
    last=(
        (
            "At last {hero} found the {object} near the {place}.",
            "There, in the middle of the {place}, was the {object}.",
            "In the end the {object} was in a small box in the {place}.",
        ),
        ("{hero} was very happy.", "{hero} laughed and danced.", "{hero} never lost it again."),
    ),
)

_FOUND: Final = _Plot(
    first=(
        _HERO,
        _HOME,
        (
            "One {weather} day {hero} found {a_object} there.",
            "One {weather} morning there was {a_object} on the ground.",
            "One night {hero} saw {a_object} in the grass.",
        ),
    ),
    middle=(
        (
            ("It was old and heavy.", "It was small and clean.", "It was warm and bright."),
            ("Whose {object} was it?", "{hero} wanted to know who had lost the {object}."),
        ),
        (
            _FRIEND,
            ('"Is this your {object}?" asked {hero}.', '"Look what I have found!" said {hero}.'),
            (
                '"No, it is not mine," said {friend}.',
                '"I have never seen it before," said {friend}.',
            ),
        ),
        (
            ("They asked everybody in the {place}.", "They walked from door to door."),
            ("Nobody knew the {object}.", "At night they were tired, but they did not stop."),
        ),
    ),
    last=(
        (
            "At last an old woman in the {place} smiled and took the {object}.",
            "In the end the {object} belonged to the king of the {place}.",
            "At last a child came and said that the {object} was hers.",
        ),
        (
            "{hero} got a big cake as a present.",
            "From that day on everybody knew {hero}.",
            "{hero} went home and slept well.",
        ),
    ),
)

_JOURNEY: Final = _Plot(
    first=(
        _HERO,
        (
            "{hero} had {a_object} and a big dream.",
            "{hero} owned nothing but {a_object}.",
            "The best friend of {hero} was {a_object}.",
        ),
        (
            "{hero} wanted to see the {place}.",
            "One {weather} day {hero} left for the {place}.",
            "The {place} was far away, but {hero} wanted to go there.",
        ),
    ),
    middle=(
        (
            ("The way was long.", "The road was dark and cold.", "The first day was easy."),
            (
                "{hero} held the {object} and walked on.",
                "At night {hero} slept next to the {object}.",
            ),
        ),
        (
            _FRIEND,
            (
                '"May I come with you?" asked {friend}.',
                '"The {place} is not far now," said {friend}.',
            ),
            ("So they walked together.", "They shared bread and water."),
        ),
        (
            ("Then a storm came.", "Then a deep river stopped them.", "Then the road was closed."),
            ("The {object} helped them.", "With the {object} they were safe."),
        ),
    ),
    last=(
        (
            "At last {hero} stood in front of the {place}.",
            "In the morning {hero} saw the {place}.",
            "At the end of the week {hero} reached the {place}.",
        ),
        (
            "It was more beautiful than any dream.",
            "{hero} put the {object} down and smiled.",
            "{hero} stayed there for many years.",
        ),
    ),
)

_PLOTS: Final = (_LOST, _FOUND, _JOURNEY)

_QUESTIONS: Final = (
    "Write a short story in {count} parts about {a_kind} named {hero}. The place is the {place}."
    " Use {a_object}.",
    "Tell me a story with {count} parts. The hero is {hero}, {a_kind}. It plays in the {place} and"
    " has {a_object} in it.",
    "Please write a story about {hero} the {kind}, the {place} and {a_object} in {count} parts.",
    "Story, {count} parts. Hero: {hero} ({kind}). Place: {place}. Object: {object}.",
    "I would like a story of {count} parts with {hero} the {kind} in the {place} and {a_object}.",
)
# Number of parts -> which parts between may stand: "they" needs the friend, who comes in 1.
_MIDDLES: Final[dict[int, tuple[tuple[int, ...], ...]]] = {
    2: ((),),
    3: ((0,), (1,)),
    4: ((0, 1), (1, 2)),
    5: ((0, 1, 2),),
}
_NUMBERS: Final = ("two", "three", "four", "five")


def stories(rng: random.Random) -> Sample:
    """Two to five parts."""
    count = rng.randint(2, 5)
    hero, friend = rng.sample(NAMES, 2)
    kinds = (*ANIMALS, *JOBS)
    kind = rng.choice(kinds)
    thing, place = rng.choice(OBJECTS), rng.choice(PLACES)
    slots = {
        "hero": hero,
        "kind": kind,
        "a_kind": article(kind),
        "mood_kind": article(f"{rng.choice(_MOODS)} {kind}"),
        "friend": friend,
        "other": rng.choice([other for other in kinds if other != kind]),
        "place": place,
        "object": thing,
        "a_object": article(thing),
        "weather": rng.choice(_WEATHER),
    }
    told = _NUMBERS[count - 2] if rng.random() < 0.4 else str(count)
    question = rng.choice(_QUESTIONS).format(count=told, **slots)
    grade = {"kind": "story", "parts": count, "words": [hero, place, thing], "ending": END}
    thought = maybe(rng, 0.15, f"{count} parts with {hero}, the {place} and the {thing}.")
    return answered(rng, "stories", question, _story(rng, count, slots), grade, thought)


def _story(rng: random.Random, count: int, slots: dict[str, str]) -> str:
    plot = rng.choice(_PLOTS)
    middle = rng.choice(_MIDDLES[count])
    parts = [plot.first, *(plot.middle[place] for place in middle), plot.last]
    lines = []
    for number, part in enumerate(parts, 1):
        text = " ".join(rng.choice(choice) for choice in part).format(**slots)
        lines.append(f"Part {number}: {text}")
    return "\n\n".join([*lines, END])
