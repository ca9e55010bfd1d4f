"""Contracts of prose: exact words, an answer, a needle, a story in parts, a language."""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from ninfer.audit.contracts.parameters import Parameters
from ninfer.audit.contracts.records import ContractCheck
from ninfer.errors import UsageError

Check = Callable[[str], ContractCheck]

_BOXED: Final = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_STATED: Final = re.compile(
    r"(?:answer|CHECK|CHECKSUM|答案)\**\s*(?:is|[:：=]|是)\s*\**\s*([^\n]+)", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"(?<![\w.])-?[0-9][0-9,]*(?:\.[0-9]+)?")
_GROUPED: Final = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_SHOWN: Final = 60
_SCRIPTS: Final = {
    "zh": ("CJK",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA"),
    "ko": ("HANGUL",),
    "en": ("LATIN",),
    "de": ("LATIN",),
    "fr": ("LATIN",),
    "es": ("LATIN",),
    "ru": ("CYRILLIC",),
}


def shown(text: str) -> str:
    """A text for a reason, cut when it is long."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def text(parameters: Parameters) -> Check:
    """The text is `equals`, has all of `contains` and one of `any_of`, and none of `absent`.

    White space and one final dot at the ends do not count for `equals`.
    """
    equals = parameters.text("equals", "")
    present, absent = parameters.texts("contains", ()), parameters.texts("absent", ())
    choices = parameters.texts("any_of", ())
    ignore_case = parameters.flag("ignore_case", False)
    if not (equals or present or absent or choices):
        raise UsageError(f"{parameters.where}: needs equals, contains, any_of or absent")

    def read(value: str) -> str:
        return value.casefold() if ignore_case else value

    def check(answer: str) -> ContractCheck:
        found, reasons = read(answer), []
        if equals and found.strip().removesuffix(".").rstrip() != read(equals).removesuffix("."):
            reasons.append(f"{shown(answer.strip())} is not {shown(equals)}")
        reasons += [f"{shown(word)} is missing" for word in present if read(word) not in found]
        if choices and not any(read(word) in found for word in choices):
            reasons.append(f"none of {', '.join(map(shown, choices))} is there")
        reasons += [f"{shown(word)} must not occur" for word in absent if read(word) in found]
        return ContractCheck(tuple(reasons))

    return check


def answer(parameters: Parameters) -> Check:
    """The final answer is `value`, a text or a number; `boxed` wants it in \\boxed{}."""
    wanted = parameters.value("value", (str, int, float))
    boxed = parameters.flag("boxed", False)

    def check(given: str) -> ContractCheck:
        found = final_answer(given, boxed=boxed)
        if found is None:
            place = " in \\boxed{}" if boxed else ""
            return ContractCheck((f"no answer{place}", f"expected {wanted}"))
        if _same(found, str(wanted)):
            return ContractCheck(())
        return ContractCheck((f"the answer is {shown(found)}, not {wanted}",))

    return check


def final_answer(given: str, *, boxed: bool = False) -> str | None:
    """The last \\boxed{}, else what stands behind the last "answer is", else the last number."""
    boxes: list[str] = _BOXED.findall(given)
    if boxes or boxed:
        return boxes[-1].strip() if boxes else None
    stated: list[str] = _STATED.findall(given)
    if stated:
        return stated[-1].strip().strip("*$. ")
    numbers: list[str] = _NUMBER.findall(given)
    return numbers[-1].rstrip(",") if numbers else None


def _same(found: str, wanted: str) -> bool:
    if _plain(found) == _plain(wanted):
        return True
    try:
        number = float(_plain(wanted))
    except ValueError:
        return False
    numbers = _NUMBER.findall(_GROUPED.sub("", found))
    return len(numbers) == 1 and float(numbers[0].replace(",", "")) == number


def _plain(value: str) -> str:
    value = re.sub(r"\\(?:text|mathrm|,|!)|[{}$\\]", "", value)
    return " ".join(_GROUPED.sub("", value).split()).removesuffix(".").casefold()


def needle(parameters: Parameters) -> Check:
    """The text says `answer`, or exactly that where `exact` is on.

    `parts` are its pieces, for telling what was found. `position` 0..1 and `tokens` say where the
    prompt has it.
    """
    wanted = parameters.text("answer")
    parts = parameters.texts("parts", ())
    exact = parameters.flag("exact", False)
    position = parameters.value("position", (int, float), 0.5)
    tokens = parameters.count("tokens", None)
    if not 0 <= position <= 1:
        raise UsageError(f"{parameters.where}.position: {position} must be 0..1")
    place = f"at {position:.0%}" + (f" of {tokens} tokens" if tokens else "")

    def check(given: str) -> ContractCheck:
        found = sum(part in given for part in parts)
        counts = (found, len(parts)) if parts else (int(wanted in given), 1)
        reasons = []
        if wanted not in given:
            some = f" ({found} of {len(parts)} parts)" if parts else ""
            reasons.append(f"needle {place} not found{some}: {shown(given.strip())}")
        elif exact and given.strip().removesuffix(".") != wanted:
            reasons.append(f"more than the needle: {shown(given.strip())}")
        return ContractCheck(tuple(reasons), valid=counts[0], wanted=counts[1])

    return check


def story(parameters: Parameters) -> Check:
    """`parts` headings in order, `mark` with {n} for the number; each part has a text of its own.

    `characters` are the fewest without white space, `part_characters` those of each part. `words`
    occur in any case of letters; the text ends with `ending`.
    """
    parts, mark = parameters.count("parts"), parameters.text("mark", "Part {n}")
    least, of_part = parameters.count("characters", 0), parameters.count("part_characters", 1)
    words, ending = parameters.texts("words", ()), parameters.text("ending", "")
    if parts < 1 or "{n}" not in mark:
        raise UsageError(f"{parameters.where}: needs parts of at least 1 and a mark with {{n}}")
    before, _, behind = mark.partition("{n}")
    heading = re.compile(
        rf"^[#*\s]*{re.escape(before)}([0-9]+){re.escape(behind)}(?![0-9])([^\n]*)$", re.MULTILINE
    )

    def check(given: str) -> ContractCheck:
        _, *rest = heading.split(given.strip())
        numbers = rest[::3]
        # A part may begin behind its heading, on the same line.
        parts_of = zip(rest[1::3], rest[2::3], strict=True)
        bodies = ["".join((body.strip() or line).split()) for line, body in parts_of]
        reasons = []
        if numbers != [str(n) for n in range(1, parts + 1)]:
            listed = ", ".join(numbers) or "not there"
            reasons.append(f"the parts are {listed}, not 1..{parts}")
        short = [n for n, body in zip(numbers, bodies, strict=True) if len(body) < of_part]
        if short:
            reasons.append(f"part {', '.join(short)} has less than {of_part} characters")
        if len(set(bodies)) < len(bodies):
            reasons.append("a part repeats another")
        total = len("".join(given.split()))
        if total < least:
            reasons.append(f"{total} characters, not {least}")
        spoken = given.casefold()
        reasons += [f"{shown(word)} is missing" for word in words if word.casefold() not in spoken]
        if ending and not given.strip().endswith(ending):
            reasons.append(f"it does not end with {shown(ending)}")
        return ContractCheck(tuple(reasons), valid=min(len(numbers), parts), wanted=parts)

    return check


def language(parameters: Parameters) -> Check:
    """At least `share` of the letters are of the script of `language`; at least `letters` of them.

    `keep` are names that may stand in another script.
    """
    name = parameters.text("language")
    share = parameters.value("share", (int, float), 0.9)
    least = parameters.count("letters", 1)
    keep = parameters.texts("keep", ())
    if name not in _SCRIPTS:
        raise UsageError(f"{parameters.where}.language: {name!r} must be one of {list(_SCRIPTS)}")
    if not 0 < share <= 1:
        raise UsageError(f"{parameters.where}.share: {share} must be above 0 and at most 1")

    def check(given: str) -> ContractCheck:
        for word in keep:
            given = given.replace(word, "")
        letters = [c for c in given if c.isalpha()]
        right = sum(_script(c) in _SCRIPTS[name] for c in letters)
        reasons = []
        if len(letters) < least:
            reasons.append(f"{len(letters)} letters, not {least}")
        if right < share * len(letters):
            part = right / len(letters)
            reasons.append(f"{part:.0%} of the letters are of language {name}, not {share:.0%}")
        return ContractCheck(tuple(reasons))

    return check


def _script(character: str) -> str:
    if character.isascii():
        return "LATIN"
    return unicodedata.name(character, "").split(" ", 1)[0].split("-", 1)[0]
