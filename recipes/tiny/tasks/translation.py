"""Simple sentences between English and German over a fixed lexicon, with one right translation.

The grammar: articles and adjectives agree in gender, case and number; the verb stands second; the
object is accusative; an adverb of time follows the German verb and ends the English sentence.
"""

import random
from dataclasses import dataclass
from typing import Final

from recipes.tiny.sample import Sample
from recipes.tiny.tasks.frame import answered, maybe
from recipes.tiny.tasks.sentences import article

# English singular and plural, German gender (m, f, n), singular and plural. No weak nouns and no
# plural that differs in the accusative.
_BEINGS: Final = (
    ("dog", "dogs", "m", "Hund", "Hunde"),
    ("cat", "cats", "f", "Katze", "Katzen"),
    ("horse", "horses", "n", "Pferd", "Pferde"),
    ("bird", "birds", "m", "Vogel", "Vögel"),
    ("cow", "cows", "f", "Kuh", "Kühe"),
    ("pig", "pigs", "n", "Schwein", "Schweine"),
    ("man", "men", "m", "Mann", "Männer"),
    ("woman", "women", "f", "Frau", "Frauen"),
    ("child", "children", "n", "Kind", "Kinder"),
    ("father", "fathers", "m", "Vater", "Väter"),
    ("mother", "mothers", "f", "Mutter", "Mütter"),
    ("friend", "friends", "m", "Freund", "Freunde"),
    ("king", "kings", "m", "König", "Könige"),
    ("doctor", "doctors", "m", "Arzt", "Ärzte"),
    ("daughter", "daughters", "f", "Tochter", "Töchter"),
    ("girl", "girls", "n", "Mädchen", "Mädchen"),
)
_THINGS: Final = (
    ("ball", "balls", "m", "Ball", "Bälle"),
    ("apple", "apples", "m", "Apfel", "Äpfel"),
    ("chair", "chairs", "m", "Stuhl", "Stühle"),
    ("table", "tables", "m", "Tisch", "Tische"),
    ("key", "keys", "m", "Schlüssel", "Schlüssel"),
    ("hat", "hats", "m", "Hut", "Hüte"),
    ("tree", "trees", "m", "Baum", "Bäume"),
    ("lamp", "lamps", "f", "Lampe", "Lampen"),
    ("flower", "flowers", "f", "Blume", "Blumen"),
    ("door", "doors", "f", "Tür", "Türen"),
    ("cup", "cups", "f", "Tasse", "Tassen"),
    ("clock", "clocks", "f", "Uhr", "Uhren"),
    ("bag", "bags", "f", "Tasche", "Taschen"),
    ("book", "books", "n", "Buch", "Bücher"),
    ("house", "houses", "n", "Haus", "Häuser"),
    ("picture", "pictures", "n", "Bild", "Bilder"),
    ("knife", "knives", "n", "Messer", "Messer"),
    ("window", "windows", "n", "Fenster", "Fenster"),
    ("car", "cars", "n", "Auto", "Autos"),
    ("bed", "beds", "n", "Bett", "Betten"),
    ("shirt", "shirts", "n", "Hemd", "Hemden"),
)
_ADJECTIVES: Final = (
    ("small", "klein"),
    ("big", "groß"),
    ("old", "alt"),
    ("young", "jung"),
    ("new", "neu"),
    ("red", "rot"),
    ("blue", "blau"),
    ("green", "grün"),
    ("black", "schwarz"),
    ("white", "weiß"),
    ("beautiful", "schön"),
    ("good", "gut"),
    ("happy", "froh"),
)
_FOR_BEINGS: Final = ("small", "big", "old", "young", "beautiful", "good", "happy")
_FOR_THINGS: Final = tuple(word for word, _ in _ADJECTIVES if word not in ("young", "happy"))
# English for he and for they; German for he, for they, for I.
_VERBS: Final = (
    ("sees", "see", "sieht", "sehen", "sehe"),
    ("finds", "find", "findet", "finden", "finde"),
    ("buys", "buy", "kauft", "kaufen", "kaufe"),
    ("has", "have", "hat", "haben", "habe"),
    ("loves", "love", "liebt", "lieben", "liebe"),
    ("brings", "bring", "bringt", "bringen", "bringe"),
    ("needs", "need", "braucht", "brauchen", "brauche"),
    ("draws", "draw", "zeichnet", "zeichnen", "zeichne"),
    ("knows", "know", "kennt", "kennen", "kenne"),
    ("looks for", "look for", "sucht", "suchen", "suche"),
)
_ADVERBS: Final = (
    ("today", "heute"),
    ("tomorrow", "morgen"),
    ("now", "jetzt"),
    ("here", "hier"),
    ("often", "oft"),
    ("again", "wieder"),
)

_DEFINITE: Final = {
    "nominative": {"m": "der", "f": "die", "n": "das", "p": "die"},
    "accusative": {"m": "den", "f": "die", "n": "das", "p": "die"},
}
_INDEFINITE: Final = {
    "nominative": {"m": "ein", "f": "eine", "n": "ein"},
    "accusative": {"m": "einen", "f": "eine", "n": "ein"},
}
# Endings of adjectives behind the definite and behind the indefinite article.
_WEAK: Final = {
    "nominative": {"m": "e", "f": "e", "n": "e", "p": "en"},
    "accusative": {"m": "en", "f": "e", "n": "e", "p": "en"},
}
_MIXED: Final = {
    "nominative": {"m": "er", "f": "e", "n": "es"},
    "accusative": {"m": "en", "f": "e", "n": "es"},
}
_GERMAN_ADJECTIVE: Final = dict(_ADJECTIVES)

_TO_GERMAN: Final = (
    "Translate into German: {}",
    "Translate from English to German: {}",
    "Translate this sentence into German.\n{}",
    "What is this in German? {}",
    "{}\n\nTranslate the sentence above into German.",
    "English to German: {}",
)
_TO_ENGLISH: Final = (
    "Translate into English: {}",
    "Translate from German to English: {}",
    "Translate this sentence into English.\n{}",
    "What is this in English? {}",
    "{}\n\nTranslate the sentence above into English.",
    "German to English: {}",
)


@dataclass(frozen=True, slots=True)
class _Phrase:
    english: str
    german: str
    plural: bool


def translation_en_de(rng: random.Random) -> Sample:
    """An English sentence to put into German."""
    english, german = sentence_pair(rng)
    return _asked(rng, "translation_en_de", _TO_GERMAN, english, german)


def translation_de_en(rng: random.Random) -> Sample:
    """A German sentence to put into English."""
    english, german = sentence_pair(rng)
    return _asked(rng, "translation_de_en", _TO_ENGLISH, german, english)


def _asked(
    rng: random.Random, task: str, phrases: tuple[str, ...], source: str, target: str
) -> Sample:
    question = rng.choice(phrases).format(source)
    thought = maybe(rng, 0.08, "I translate word by word and watch the endings.")
    return answered(rng, task, question, target, {"kind": "exact", "answer": target}, thought)


def sentence_pair(rng: random.Random) -> tuple[str, str]:
    """An English sentence and its German translation."""
    verb = rng.choice(_VERBS)
    if rng.random() < 0.15:
        plural = rng.random() < 0.5
        subject = _Phrase("We" if plural else "I", "Wir" if plural else "Ich", plural=True)
        german_verb = verb[3] if plural else verb[4]
    else:
        subject = _noun_phrase(rng, _BEINGS, _FOR_BEINGS, "nominative")
        german_verb = verb[3] if subject.plural else verb[2]
    english_verb = verb[1] if subject.plural else verb[0]
    thing = rng.random() < 0.7
    nouns, adjectives = (_THINGS, _FOR_THINGS) if thing else (_BEINGS, _FOR_BEINGS)
    target = _noun_phrase(rng, nouns, adjectives, "accusative")
    adverb = rng.choice(_ADVERBS) if rng.random() < 0.3 else ("", "")
    english = " ".join(filter(None, (subject.english, english_verb, target.english, adverb[0])))
    german = " ".join(filter(None, (subject.german, german_verb, adverb[1], target.german)))
    return _capital(english) + ".", _capital(german) + "."


def _noun_phrase(
    rng: random.Random,
    nouns: tuple[tuple[str, str, str, str, str], ...],
    adjectives: tuple[str, ...],
    case: str,
) -> _Phrase:
    singular, plural, gender, german_singular, german_plural = rng.choice(nouns)
    adjective = rng.choice(adjectives) if rng.random() < 0.65 else ""
    if rng.random() < 0.25:
        ending = _WEAK[case]["p"]
        english = ("the", adjective, plural)
        german = (_DEFINITE[case]["p"], _ended(adjective, ending), german_plural)
        return _Phrase(_joined(english), _joined(german), plural=True)
    if rng.random() < 0.6:
        english = ("the", adjective, singular)
        german = (
            _DEFINITE[case][gender],
            _ended(adjective, _WEAK[case][gender]),
            german_singular,
        )
    else:
        english = ("", "", article(_joined((adjective, singular))))
        german = (
            _INDEFINITE[case][gender],
            _ended(adjective, _MIXED[case][gender]),
            german_singular,
        )
    return _Phrase(_joined(english), _joined(german), plural=False)


def _ended(adjective: str, ending: str) -> str:
    return _GERMAN_ADJECTIVE[adjective] + ending if adjective else ""


def _joined(words: tuple[str, ...]) -> str:
    return " ".join(filter(None, words))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
