"""Answers in a requested language and length."""

import random
from typing import Any, Final

from ninfer.audit.contracts.length import words_of
from recipes.tiny.sample import Sample
from recipes.tiny.tasks.facts import FACTS, LANGUAGES, Fact
from recipes.tiny.tasks.frame import answered, maybe

# How the language and the length of the answer are asked for, by the language of the question.
_ASKED: Final = {
    "en": (
        ("Answer in {}.", "Please answer in {}.", "Answer in {}, {}.", "Reply in {} {}."),
        {"en": "English", "de": "German", "fr": "French"},
        {"one": "in one sentence", "two": "in two sentences", "words": "in exactly three words"},
    ),
    "de": (
        (
            "Antworte auf {}.",
            "Bitte antworte auf {}.",
            "Antworte auf {}, {}.",
            "Antworte {1} auf {0}.",
        ),
        {"en": "Englisch", "de": "Deutsch", "fr": "Französisch"},
        {"one": "in einem Satz", "two": "in zwei Sätzen", "words": "in genau drei Wörtern"},
    ),
    "fr": (
        (
            "Réponds en {}.",
            "Réponds en {} s'il te plaît.",
            "Réponds en {}, {}.",
            "Réponds {1} en {0}.",
        ),
        {"en": "anglais", "de": "allemand", "fr": "français"},
        {"one": "en une phrase", "two": "en deux phrases", "words": "en trois mots exactement"},
    ),
}
_LENGTHS: Final = {"one": ("sentences", 1), "two": ("sentences", 2), "words": ("words", 3)}
_ENGLISH_NAMES: Final = _ASKED["en"][1]


def languages(rng: random.Random) -> Sample:
    """A simple fact, asked in one language and answered in the same or another."""
    fact = rng.choice(FACTS)
    asked, wanted = rng.choices(LANGUAGES, (3, 1, 1))[0], rng.choice(LANGUAGES)
    length = rng.choice(tuple(_LENGTHS))
    phrases, names, lengths = _ASKED[asked]
    named = wanted != asked or rng.random() < 0.4
    if named and length == "one" and rng.random() < 0.3:
        request = rng.choice(phrases[:2]).format(names[wanted])
    elif named:
        request = rng.choice(phrases[2:]).format(names[wanted], lengths[length])
    else:
        verb = {"en": "Answer", "de": "Antworte", "fr": "Réponds"}[asked]
        request = f"{verb} {lengths[length]}."
    question = fact[asked].question
    question = rng.choice(
        (f"{question} {request}", f"{request} {question}", f"{question}\n{request}")
    )
    thought = maybe(rng, 0.15, f"{_ENGLISH_NAMES[wanted]}, {_ASKED['en'][2][length]}.")
    answer = _answer(fact[wanted], length)
    return answered(rng, "languages", question, answer, _grade(fact[wanted], length), thought)


def _answer(fact: Fact, length: str) -> str:
    return {"one": fact.sentence, "two": fact.two_sentences, "words": fact.three_words}[length]


def _grade(fact: Fact, length: str) -> dict[str, Any]:
    """The length exactly; only words that the fact's answers in this language have."""
    unit, count = _LENGTHS[length]
    lexicon = sorted(set(words_of(f"{fact.two_sentences} {fact.three_words}")))
    return {
        "kind": "language_length",
        "lexicon": lexicon,
        "unit": unit,
        "least": count,
        "most": count,
    }
