"""Graders of longer texts: stories in numbered parts, texts of a language and a length."""

import re
from collections.abc import Callable

from ninfer.audit.contracts import UNITS, count_units
from ninfer.audit.contracts.length import words_of
from ninfer.audit.contracts.parameters import Parameters
from ninfer.errors import UsageError
from ninfer.evals.answer import Answer
from ninfer.evals.graders.text import shown


def story(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """`parts` headings "`mark` N" in order and no more, each part with a text of its own.

    A heading stands at the start of a line. `words` occur somewhere, in any case of letters;
    `ending` is the last text.
    """
    parts, mark = parameters.count("parts"), parameters.text("mark", "Part")
    words, ending = parameters.texts("words", ()), parameters.text("ending", "")
    if parts < 1:
        raise UsageError(f"{parameters.where}.parts: {parts} must be positive")
    heading = re.compile(rf"^{re.escape(mark)} ([0-9]+)\b[.:]?", re.MULTILINE)

    def check(answer: Answer) -> tuple[str, ...]:
        text = answer.content.strip()
        reasons = _parts(heading, text, parts)
        spoken = text.casefold()
        reasons += [f"{shown(w)} is missing" for w in words if w.casefold() not in spoken]
        if not text.endswith(ending):
            reasons.append(f"it does not end with {shown(ending)}")
        return tuple(reasons)

    return check


def _parts(heading: re.Pattern[str], text: str, count: int) -> list[str]:
    before, *rest = heading.split(text)
    numbers, bodies = rest[::2], [" ".join(body.split()) for body in rest[1::2]]
    reasons = [f"{shown(before)} stands before the first part"] if before.strip() else []
    if numbers != [str(n) for n in range(1, count + 1)]:
        reasons.append(
            f"the parts are numbered {', '.join(numbers) or 'not at all'}, not 1..{count}"
        )
    if not all(bodies):
        reasons.append("a part has no text")
    if len(set(bodies)) < len(bodies):
        reasons.append("a part repeats another")
    return reasons


def language_length(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """At least `share` of the words are of `lexicon`, and there are `least` to `most` of `unit`."""
    lexicon = frozenset(word.casefold() for word in parameters.texts("lexicon"))
    share = parameters.value("share", (int, float), 1.0)
    unit = parameters.text("unit")
    least, most = parameters.count("least", 1), parameters.count("most", None)
    if unit not in UNITS:
        raise UsageError(f"{parameters.where}.unit: {unit!r} must be one of {', '.join(UNITS)}")
    if not 0 < share <= 1:
        raise UsageError(f"{parameters.where}.share: {share} must be above 0 and at most 1")
    if most is not None and most < least:
        raise UsageError(f"{parameters.where}.most: {most} is below least ({least})")

    def check(answer: Answer) -> tuple[str, ...]:
        words = [word.casefold() for word in words_of(answer.content)]
        strange = [word for word in words if word not in lexicon]
        count = count_units(answer.content, unit)
        reasons = []
        if len(words) - len(strange) < share * len(words) or not words:
            reasons.append(f"other words than of the language: {shown(' '.join(strange))}")
        if count < least or (most is not None and count > most):
            reasons.append(f"{count} {unit}, not {least} to {'any' if most is None else most}")
        return tuple(reasons)

    return check
