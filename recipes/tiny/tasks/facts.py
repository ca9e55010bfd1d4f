"""Simple facts in English, German and French, each told in three lengths."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

LANGUAGES: Final = ("en", "de", "fr")


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact in one language."""

    question: str
    sentence: str
    second: str
    three_words: str

    @property
    def two_sentences(self) -> str:
        """The sentence and a second one."""
        return f"{self.sentence} {self.second}"


# Templates of a kind of fact by language, over {a} and {b}, the same with a capital, {A} and
# {B}, and the pronoun {P} of {a}.
_Kind = Mapping[str, Fact]

_DAYS: Final[_Kind] = {
    "en": Fact(
        "Which day comes after {a}?",
        "{B} comes after {a}.",
        "A week has seven days.",
        "It is {b}.",
    ),
    "de": Fact(
        "Welcher Tag kommt nach {a}?",
        "Nach {a} kommt {b}.",
        "Eine Woche hat sieben Tage.",
        "Es ist {b}.",
    ),
    "fr": Fact(
        "Quel jour vient après {a} ?",
        "Après {a} vient {b}.",
        "Une semaine a sept jours.",
        "Ce sera {b}.",
    ),
}
_MONTHS: Final[_Kind] = {
    "en": Fact(
        "Which month comes after {a}?",
        "{B} comes after {a}.",
        "A year has twelve months.",
        "It is {b}.",
    ),
    "de": Fact(
        "Welcher Monat kommt nach {a}?",
        "Nach {a} kommt {b}.",
        "Ein Jahr hat zwölf Monate.",
        "Es ist {b}.",
    ),
    "fr": Fact(
        "Quel mois vient après {a} ?",
        "Après {a} vient {b}.",
        "Une année a douze mois.",
        "Ce sera {b}.",
    ),
}
_COUNTING: Final[_Kind] = {
    "en": Fact(
        "Which number comes after {a}?",
        "{B} comes after {a}.",
        "Numbers have no end.",
        "It is {b}.",
    ),
    "de": Fact(
        "Welche Zahl kommt nach {a}?",
        "Nach {a} kommt {b}.",
        "Zahlen haben kein Ende.",
        "Es ist {b}.",
    ),
    "fr": Fact(
        "Quel nombre vient après {a} ?",
        "Après {a} vient {b}.",
        "Les nombres sont sans fin.",
        "Ce sera {b}.",
    ),
}
_COLOURS: Final[_Kind] = {
    "en": Fact(
        "What colour is {a}?",
        "{A} is {b}.",
        "Everybody knows this colour.",
        "{P} is {b}.",
    ),
    "de": Fact(
        "Welche Farbe hat {a}?",
        "{A} ist {b}.",
        "Diese Farbe kennt jeder.",
        "{P} ist {b}.",
    ),
    "fr": Fact(
        "De quelle couleur est {a} ?",
        "{A} est {b}.",
        "Tout le monde connaît cette couleur.",
        "{P} est {b}.",
    ),
}
_OPPOSITES: Final[_Kind] = {
    "en": Fact(
        "What is the opposite of {a}?",
        "The opposite of {a} is {b}.",
        "Both words are short.",
        "It is {b}.",
    ),
    "de": Fact(
        "Was ist das Gegenteil von {a}?",
        "Das Gegenteil von {a} ist {b}.",
        "Beide Wörter sind kurz.",
        "Es ist {b}.",
    ),
    "fr": Fact(
        "Quel est le contraire de {a} ?",
        "Le contraire de {a} est {b}.",
        "Les deux mots sont courts.",
        "Il est {b}.",
    ),
}
_LEGS: Final[_Kind] = {
    "en": Fact(
        "How many legs does {a} have?",
        "{A} has {b} legs.",
        "They are easy to count.",
        "It has {b}.",
    ),
    "de": Fact(
        "Wie viele Beine hat {a}?",
        "{A} hat {b} Beine.",
        "Sie sind leicht zu zählen.",
        "Es sind {b}.",
    ),
    "fr": Fact(
        "Combien de pattes a {a} ?",
        "{A} a {b} pattes.",
        "C'est facile à compter.",
        "Ce sont {b}.",
    ),
}
_KINDS: Final[_Kind] = {
    "en": Fact("What is {a}?", "{A} is {b}.", "Everybody knows that.", "Just {b}."),
    "de": Fact("Was ist {a}?", "{A} ist {b}.", "Das weiß jeder.", "Nur {b}."),
    "fr": Fact("C'est quoi, {a} ?", "{A} est {b}.", "Tout le monde le sait.", "Juste {b}."),
}

# {a} and {b} in English, German and French.
_Pair = tuple[str, str, str, str, str, str]


def _cycle(en: str, de: str, fr: str) -> tuple[_Pair, ...]:
    """Each word and the one after it; the last is followed by the first."""
    columns = [text.split() for text in (en, de, fr)]
    count = len(columns[0])
    assert all(len(column) == count for column in columns)
    following = [(place + 1) % count for place in range(count)]
    return tuple(
        (
            *(columns[0][place], columns[0][after]),
            *(columns[1][place], columns[1][after]),
            *(columns[2][place], columns[2][after]),
        )
        for place, after in enumerate(following)
    )


_TABLE: Final[tuple[tuple[_Kind, tuple[_Pair, ...]], ...]] = (
    (
        _DAYS,
        _cycle(
            "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
            "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
            "lundi mardi mercredi jeudi vendredi samedi dimanche",
        ),
    ),
    (
        _MONTHS,
        _cycle(
            "January February March April May June July August September October November December",
            "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
            "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        ),
    ),
    (
        _COUNTING,
        _cycle(
            "one two three four five six seven eight nine ten eleven twelve",
            "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
            "un deux trois quatre cinq six sept huit neuf dix onze douze",
        )[:-1],
    ),
    (
        _COLOURS,
        (
            ("the sky", "blue", "der Himmel", "blau", "le ciel", "bleu"),
            ("the grass", "green", "das Gras", "grün", "l'herbe", "verte"),
            ("the snow", "white", "der Schnee", "weiß", "la neige", "blanche"),
            ("the sun", "yellow", "die Sonne", "gelb", "le soleil", "jaune"),
            ("the night", "black", "die Nacht", "schwarz", "la nuit", "noire"),
            ("a tomato", "red", "eine Tomate", "rot", "une tomate", "rouge"),
            ("a lemon", "yellow", "eine Zitrone", "gelb", "un citron", "jaune"),
            ("a frog", "green", "ein Frosch", "grün", "une grenouille", "verte"),
            ("the sea", "blue", "das Meer", "blau", "la mer", "bleue"),
            ("milk", "white", "die Milch", "weiß", "le lait", "blanc"),
        ),
    ),
    (
        _OPPOSITES,
        (
            ("big", "small", "groß", "klein", "grand", "petit"),
            ("old", "new", "alt", "neu", "vieux", "nouveau"),
            ("hot", "cold", "heiß", "kalt", "chaud", "froid"),
            ("long", "short", "lang", "kurz", "long", "court"),
            ("fast", "slow", "schnell", "langsam", "rapide", "lent"),
            ("rich", "poor", "reich", "arm", "riche", "pauvre"),
            ("full", "empty", "voll", "leer", "plein", "vide"),
            ("light", "dark", "hell", "dunkel", "clair", "sombre"),
            ("good", "bad", "gut", "schlecht", "bon", "mauvais"),
            ("strong", "weak", "stark", "schwach", "fort", "faible"),
        ),
    ),
    (
        _LEGS,
        (
            ("a dog", "four", "ein Hund", "vier", "un chien", "quatre"),
            ("a cat", "four", "eine Katze", "vier", "un chat", "quatre"),
            ("a bird", "two", "ein Vogel", "zwei", "un oiseau", "deux"),
            ("a fly", "six", "eine Fliege", "sechs", "une mouche", "six"),
            ("a spider", "eight", "eine Spinne", "acht", "une araignée", "huit"),
            ("a duck", "two", "eine Ente", "zwei", "un canard", "deux"),
        ),
    ),
    (
        _KINDS,
        (
            ("a rose", "a flower", "eine Rose", "eine Blume", "une rose", "une fleur"),
            ("a cow", "an animal", "eine Kuh", "ein Tier", "une vache", "un animal"),
            ("an apple", "a fruit", "ein Apfel", "eine Frucht", "une pomme", "un fruit"),
            ("Paris", "a city", "Paris", "eine Stadt", "Paris", "une ville"),
            ("Italy", "a country", "Italien", "ein Land", "l'Italie", "un pays"),
            ("a hammer", "a tool", "ein Hammer", "ein Werkzeug", "un marteau", "un outil"),
            ("an oak", "a tree", "eine Eiche", "ein Baum", "un chêne", "un arbre"),
            ("gold", "a metal", "Gold", "ein Metall", "l'or", "un métal"),
        ),
    ),
)


# By the article; English has but one.
_PRONOUNS: Final = {
    "der": "Er",
    "ein": "Er",
    "die": "Sie",
    "eine": "Sie",
    "das": "Es",
    "le": "Il",
    "un": "Il",
    "la": "Elle",
    "une": "Elle",
    "l'herbe": "Elle",
}


def _filled(template: str, a: str, b: str) -> str:
    pronoun = _PRONOUNS.get(a.split()[0], "It")
    return template.format(a=a, b=b, A=a[0].upper() + a[1:], B=b[0].upper() + b[1:], P=pronoun)


def _facts() -> Iterator[Mapping[str, Fact]]:
    for kind, pairs in _TABLE:
        for pair in pairs:
            yield {
                language: Fact(
                    *(
                        _filled(template, pair[2 * place], pair[2 * place + 1])
                        for template in (
                            kind[language].question,
                            kind[language].sentence,
                            kind[language].second,
                            kind[language].three_words,
                        )
                    )
                )
                for place, language in enumerate(LANGUAGES)
            }


FACTS: Final[tuple[Mapping[str, Fact], ...]] = tuple(_facts())
