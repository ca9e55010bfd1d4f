"""The audit of a set of responses: its tables, and the whole of it as JSON."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ninfer.audit.gains import Gain, gains
from ninfer.audit.tables import GroupRow, group_rows
from ninfer.audit.verdict import Verdict

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Audit:
    """Verdicts and what follows from them. There is at least one verdict."""

    verdicts: Sequence[Verdict]
    by: str = "category"

    @property
    def usable_share(self) -> float:
        """The share of usable responses."""
        return sum(verdict.usable for verdict in self.verdicts) / len(self.verdicts)

    @property
    def rows(self) -> list[GroupRow]:
        """The groups, the last over all of several."""
        return group_rows(self.verdicts, self.by)

    @property
    def mode_rows(self) -> list[GroupRow]:
        """One row for each mode; empty where there is one mode only."""
        rows = group_rows(self.verdicts, "mode")
        return rows[:-1] if len(rows) > 1 else []

    @property
    def gains(self) -> list[Gain]:
        """What the other modes gain over the first one, by group."""
        return gains(self.verdicts, self.by)

    @property
    def endings(self) -> dict[str, int]:
        """How many ended in which way, most frequent first."""
        return dict(Counter(str(verdict.ending) for verdict in self.verdicts).most_common())

    @property
    def sentence(self) -> str:
        """The audit in a sentence."""
        total = len(self.verdicts)
        usable = sum(verdict.usable for verdict in self.verdicts)
        words = Counter(verdict.word for verdict in self.verdicts if not verdict.usable)
        against = ", ".join(f"{count} {word}" for word, count in words.most_common())
        return f"{usable} of {total} responses are usable" + (f"; {against}" if against else "")

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values, without texts."""
        return {
            "schema": SCHEMA,
            "summary": self.sentence,
            "usable_share": self.usable_share,
            "endings": self.endings,
            "origins": origins(self.verdicts),
            "by": self.by,
            "groups": [row.to_json() for row in self.rows],
            "modes": [row.to_json() for row in self.mode_rows],
            "gains": [gain.to_json() for gain in self.gains],
            "responses": [verdict.to_json() for verdict in self.verdicts],
        }


def origins(verdicts: Iterable[Verdict]) -> list[str]:
    """Who wrote the responses, each once, as far as it is known."""
    found: dict[str, None] = {}
    for verdict in verdicts:
        origin = verdict.response.origin
        parts = (origin.model, origin.server, origin.software, origin.revision, origin.hardware)
        text = ", ".join(part for part in parts if part)
        if text:
            found[text] = None
    return list(found)
