"""One thing that was looked at, what was found, and what mends it."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Symptom:
    """A line of a report. `fix` is empty for what is well."""

    verdict: Verdict
    name: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.verdict:4}  {self.name}: {self.text}"
        return f"{line}\n      fix: {self.fix}" if self.fix else line


def ok(name: str, text: str) -> Symptom:
    """Nothing to do."""
    return Symptom("ok", name, text)


def note(name: str, text: str, fix: str = "") -> Symptom:
    """Works, but not as well as it could."""
    return Symptom("note", name, text, fix)


def bad(name: str, text: str, fix: str) -> Symptom:
    """Does not work."""
    return Symptom("bad", name, text, fix)
