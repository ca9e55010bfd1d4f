"""Small vocabularies that the tasks share, so that most words are one token each."""

from typing import Final

NAMES: Final = (
    "Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karl Lena Mila Noah Olga Paul Rosa Sam"
    " Tom Vera Lucas Maria Nina Oscar"
).split()

CITIES: Final = (
    "Berlin Paris London Rome Madrid Vienna Bern Oslo Lisbon Athens Prague Dublin Tokyo Cairo Lima"
    " Boston"
).split()

COUNTRIES: Final = (
    "Germany France England Italy Spain Austria Norway Portugal Greece Ireland Japan Egypt"
).split()

COLOURS: Final = (
    "red blue green yellow black white brown orange purple pink grey silver golden"
).split()

ANIMALS: Final = (
    "dog cat horse bird fish mouse rabbit bear fox wolf duck cow sheep owl frog".split()
)

FRUITS: Final = (
    "apple banana cherry lemon melon peach pear plum grape mango kiwi fig olive"
).split()

OBJECTS: Final = (
    "book lamp chair table clock key box bag cup plate knife spoon bottle ball hat shoe coat ring"
    " map letter pen rope drum bell lantern mirror stone coin"
).split()

PLACES: Final = (
    "forest garden house river lake mountain village castle market school tower bridge island beach"
    " farm field kitchen cellar harbour station"
).split()

JOBS: Final = "teacher baker doctor farmer singer painter pilot nurse cook driver writer".split()

ADJECTIVES: Final = (
    "small big old young happy sad quick slow quiet loud warm cold bright dark clean strong kind"
    " brave tired round soft heavy light"
).split()

VERBS: Final = (
    "sees finds likes carries follows watches needs wants keeps takes brings holds loses sells buys"
    " hides moves opens paints washes"
).split()

ADVERBS: Final = (
    *("today", "again", "slowly", "quickly", "often", "soon"),
    *("at night", "in the morning", "every day", "after lunch"),
)

WEEKDAYS: Final = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

MONTHS: Final = (
    "January February March April May June July August September October November December"
).split()

# All single words that a list or a text to copy may be made of.
PLAIN_WORDS: Final = (*ANIMALS, *FRUITS, *OBJECTS, *PLACES, *ADJECTIVES, *JOBS)
