"""Small vocabularies that the tasks share, so that most words are one token each."""

from typing import Final


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


NAMES: Final = words(
    "Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karl Lena Mila Noah Olga Paul Rosa Sam"
    " Tom Vera Lucas Maria Nina Oscar"
)

CITIES: Final = words(
    "Berlin Paris London Rome Madrid Vienna Bern Oslo Lisbon Athens Prague Dublin Tokyo Cairo Lima"
    " Boston"
)

COUNTRIES: Final = words(
    "Germany France England Italy Spain Austria Norway Portugal Greece Ireland Japan Egypt"
)

COLOURS: Final = words(
    "red blue green yellow black white brown orange purple pink grey silver golden"
)

ANIMALS: Final = words("dog cat horse bird fish mouse rabbit bear fox wolf duck cow sheep owl frog")

FRUITS: Final = words("apple banana cherry lemon melon peach pear plum grape mango kiwi fig olive")

OBJECTS: Final = words(
    "book lamp chair table clock key box bag cup plate knife spoon bottle ball hat shoe coat ring"
    " map letter pen rope drum bell lantern mirror stone coin"
)

PLACES: Final = words(
    "forest garden house river lake mountain village castle market school tower bridge island beach"
    " farm field kitchen cellar harbour station"
)

JOBS: Final = words("teacher baker doctor farmer singer painter pilot nurse cook driver writer")

ADJECTIVES: Final = words(
    "small big old young happy sad quick slow quiet loud warm cold bright dark clean strong kind"
    " brave tired round soft heavy light"
)

VERBS: Final = words(
    "sees finds likes carries follows watches needs wants keeps takes brings holds loses sells buys"
    " hides moves opens paints washes"
)

ADVERBS: Final = (
    *("today", "again", "slowly", "quickly", "often", "soon"),
    *("at night", "in the morning", "every day", "after lunch"),
)

WEEKDAYS: Final = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")

MONTHS: Final = words(
    "January February March April May June July August September October November December"
)

# All single words that a list or a text to copy may be made of.
PLAIN_WORDS: Final = (*ANIMALS, *FRUITS, *OBJECTS, *PLACES, *ADJECTIVES, *JOBS)
