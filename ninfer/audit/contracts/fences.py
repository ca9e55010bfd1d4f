"""Fenced blocks of Markdown: what is in them, what their first line says, what stands before."""

import re
from dataclasses import dataclass
from typing import Final

_OPEN: Final = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*(.*)")


@dataclass(frozen=True, slots=True)
class Fence:
    """A block: `info` behind its opening marks, `before` the last line with text in front of it."""

    info: str
    body: str
    before: str
    closed: bool

    @property
    def language(self) -> str:
        """The first word of `info`, in small letters."""
        words = self.info.split()
        return words[0].lower() if words else ""


def fences_of(text: str) -> list[Fence]:
    """The blocks in order; a block that is not closed ends with the text."""
    found: list[Fence] = []
    before, marks, info = "", "", ""
    body: list[str] = []
    for line in text.split("\n"):
        if not marks:
            opened = _OPEN.fullmatch(line.rstrip("\r"))
            if opened and "`" not in opened[2]:
                marks, info, body = opened[1], opened[2].strip(), []
            elif line.strip():
                before = line.strip()
        elif line.strip().startswith(marks) and not line.strip().strip(marks[0]):
            found.append(Fence(info, "\n".join(body), before, closed=True))
            before, marks = "", ""
        else:
            body.append(line)
    if marks:
        found.append(Fence(info, "\n".join(body), before, closed=False))
    return found


def without_fences(text: str) -> str:
    """The lines that stand outside of blocks."""
    kept, marks = [], ""
    for line in text.split("\n"):
        opened = _OPEN.fullmatch(line.rstrip("\r"))
        if not marks and opened and "`" not in opened[2]:
            marks = opened[1]
        elif marks and line.strip().startswith(marks) and not line.strip().strip(marks[0]):
            marks = ""
        elif not marks:
            kept.append(line)
    return "\n".join(kept)


def only_block(text: str, languages: tuple[str, ...]) -> str:
    """The body of the one block of these languages, where there is exactly one; else the text."""
    blocks = [fence for fence in fences_of(text) if fence.language in languages]
    return blocks[0].body if len(blocks) == 1 else text
