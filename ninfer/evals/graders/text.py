"""Graders of short answers: exact texts, numbers, lists, words that must occur."""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from ninfer.audit.contracts.parameters import Parameters
from ninfer.errors import UsageError
from ninfer.evals.answer import Answer

_NUMBER: Final = re.compile(r"(?<![\w.])-?[0-9][0-9,]*(?:\.[0-9]+)?")
_GROUPED: Final = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})+")
_BULLET: Final = re.compile(r"(?:[-*•]|[0-9]+[.)])\s+")
_SHOWN: Final = 60


def shown(text: str) -> str:
    """A text for a reason, cut when it is long."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _normal(text: str, ignore_case: bool) -> str:
    """Without outer white space and one final dot."""
    text = text.strip().removesuffix(".").rstrip()
    return text.casefold() if ignore_case else text


def exact(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """The text is `answer`."""
    return _among((parameters.text("answer"),), parameters.flag("ignore_case", False))


def one_of(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """The text is one of `answers`."""
    return _among(parameters.texts("answers"), parameters.flag("ignore_case", False))


def _among(answers: tuple[str, ...], ignore_case: bool) -> Callable[[Answer], tuple[str, ...]]:
    wanted = {_normal(answer, ignore_case) for answer in answers}

    def check(answer: Answer) -> tuple[str, ...]:
        if _normal(answer.content, ignore_case) in wanted:
            return ()
        return (f"{shown(answer.content)} is not {' or '.join(map(shown, answers))}",)

    return check


def number(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """The last number of the text is `answer`."""
    wanted = parameters.value("answer", int)

    def check(answer: Answer) -> tuple[str, ...]:
        found = last_number(answer.content)
        if found is None:
            return (f"no number in {shown(answer.content)}",)
        return () if found == wanted else (f"{found} is not {wanted}",)

    return check


def last_number(text: str) -> float | None:
    """The last number, thousands separated by commas or not; None without one."""
    spelled = _NUMBER.findall(text)
    if not spelled:
        return None
    last = spelled[-1].rstrip(",")
    whole = last.partition(".")[0]
    if "," in whole and not _GROUPED.fullmatch(whole):
        last = last.rpartition(",")[2]  # numbers listed without spaces
    last = last.replace(",", "")
    return float(last) if "." in last else int(last)


def listed(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """The text lists `items` and nothing else, in their order unless `ordered` is off.

    With `separator` exactly that stands between them.
    """
    items, separator = parameters.value("items", list), parameters.value("separator", str, "")
    ordered = parameters.flag("ordered", True)
    if not all(type(item) in (str, int) for item in items):
        raise UsageError(f"{parameters.where}.items: {items!r} must hold texts and integers")
    wanted = [str(item) for item in items]

    def check(answer: Answer) -> tuple[str, ...]:
        found = read_list(answer.content, separator)
        if found == wanted or (not ordered and Counter(found) == Counter(wanted)):
            return ()
        return (f"{shown(', '.join(found))} is not {shown(', '.join(wanted))}",)

    return check


def read_list(text: str, separator: str = "") -> list[str]:
    """What `separator` divides, less a final dot.

    Without one: a JSON array, or lines (bullets and numbers in front left out), or commas.
    """
    text = text.strip()
    if separator:
        return text.removesuffix(".").split(separator) if text else []
    if text.startswith("["):
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        return [str(item) for item in value] if isinstance(value, list) else [text]
    if "\n" in text:
        lines = [line.strip() for line in text.split("\n")]
        return [_BULLET.sub("", line, count=1) if _BULLET.match(line) else line for line in lines]
    text = text.removesuffix(".")
    return [item.strip() for item in text.split(",")] if text else []


def contains(parameters: Parameters) -> Callable[[Answer], tuple[str, ...]]:
    """All of `all` and none of `absent` occur as whole words."""
    ignore_case = parameters.flag("ignore_case", False)
    present = [(word, _whole(word, ignore_case)) for word in parameters.texts("all")]
    absent = [(word, _whole(word, ignore_case)) for word in parameters.texts("absent", ())]

    def check(answer: Answer) -> tuple[str, ...]:
        missing = [word for word, pattern in present if not pattern.search(answer.content)]
        unwanted = [word for word, pattern in absent if pattern.search(answer.content)]
        return (
            *(f"{shown(word)} is missing" for word in missing),
            *(f"{shown(word)} must not occur" for word in unwanted),
        )

    return check


def _whole(word: str, ignore_case: bool) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE if ignore_case else 0)
