"""Streamed text to text and the tags of tool calls; a possible part of a tag is held back."""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

CALL_TAG: Final = "<tool_call>"
_MAX_NAME: Final = 256


class TagKind(Enum):
    """The tags of the XML form, and the thought's closer, which can follow a call."""

    CALL = auto()
    CALL_END = auto()
    FUNCTION = auto()
    FUNCTION_END = auto()
    PARAMETER = auto()
    PARAMETER_END = auto()
    THOUGHT_END = auto()


_FIXED: Final = {
    CALL_TAG: TagKind.CALL,
    "</tool_call>": TagKind.CALL_END,
    "</function>": TagKind.FUNCTION_END,
    "</parameter>": TagKind.PARAMETER_END,
    "</think>": TagKind.THOUGHT_END,
}
_NAMED: Final = {"<function=": TagKind.FUNCTION, "<parameter=": TagKind.PARAMETER}
_CLOSERS: Final = ("</tool_call>", "</function>", "</parameter>")

_NAME: Final = rf"[^<>\n]{{0,{_MAX_NAME}}}"
# A name that has no `>` ends before the next `<` or line break.
_TAG: Final = re.compile("|".join([*_FIXED, rf"({'|'.join(_NAMED)})({_NAME})(?:>|(?=[<\n]))"]))


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag as it stands in the text. `name` is that of a function or parameter, cleaned.

    Not `closed` is a tag whose `>` is missing.
    """

    kind: TagKind
    raw: str
    name: str = ""
    closed: bool = True


Token = Tag | str


class TagLexer:
    """Cuts text that comes in pieces at the tags. Linear in the text, however it is cut."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> list[Token]:
        """Tags and the non-empty texts between them, as far as they are certain."""
        text = self._held + text
        tokens: list[Token] = []
        start = scan = 0
        while (place := text.find("<", scan)) >= 0:
            match = _TAG.match(text, place)
            if match:
                if place > start:
                    tokens.append(text[start:place])
                tokens.append(_tag(match))
                start = scan = match.end()
            elif _BEGUN.fullmatch(text, place):
                break
            else:
                scan = place + 1
        end = place if place >= 0 else len(text)
        if end > start:
            tokens.append(text[start:end])
        self._held = text[end:]
        return tokens

    def flush(self) -> str:
        """The held beginning of a tag that never came; no more text follows."""
        held, self._held = self._held, ""
        return held


def clean_name(text: str) -> str:
    """A name without the white space and the pair of quotes around it."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].strip()
    return text


def is_closer_cut_short(text: str) -> bool:
    """Whether a text is empty or the beginning of a closing tag."""
    return any(closer.startswith(text) for closer in _CLOSERS)


def begun(*tags: str) -> str:
    """A pattern for the beginnings of each of the tags, the empty one and the whole included."""
    return "|".join("".join(f"(?:{re.escape(c)}" for c in tag) + ")?" * len(tag) for tag in tags)


_BEGUN: Final = re.compile(f"{begun(*_FIXED, *_NAMED)}|(?:{'|'.join(_NAMED)}){_NAME}")
# The opening of a call up to its function's name, and what may become one.
_SPACE: Final = r"\s{0,64}"
CALL_OPENING: Final = re.compile(rf"{CALL_TAG}{_SPACE}<function=({_NAME})(?:>|(?=[<\n]))")
CALL_BEGUN: Final = (
    rf"{begun(CALL_TAG)}|{CALL_TAG}{_SPACE}(?:{begun('<function=')}|<function={_NAME})"
)


def _tag(match: re.Match[str]) -> Tag:
    raw = match[0]
    if raw in _FIXED:
        return Tag(_FIXED[raw], raw)
    return Tag(_NAMED[match[1]], raw, clean_name(match[2]), raw.endswith(">"))
