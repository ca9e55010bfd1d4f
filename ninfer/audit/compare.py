"""Two sets of responses to the same questions: pairs, and what the second gains over the first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ninfer.audit.gains import Gain, Pair, chance_text, grouped_gains
from ninfer.audit.statistics import sign_test
from ninfer.audit.summary import origins
from ninfer.audit.verdict import Verdict
from ninfer.errors import UsageError

SCHEMA: Final = 1
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Pairs with the same question, seed and sampling, at least one; `alone` had no partner."""

    first: str
    second: str
    pairs: Sequence[Pair]
    alone: int
    by: str

    @property
    def gains(self) -> list[Gain]:
        """By group, and over all."""
        return grouped_gains(self.pairs, self.by, self.first, self.second)

    @property
    def sentence(self) -> str:
        """The comparison in a sentence: who is usable more often, and who is faster."""
        lost = sum(old.usable and not new.usable for old, new in self.pairs)
        gained = sum(new.usable and not old.usable for old, new in self.pairs)
        whole = grouped_gains(self.pairs, "all", self.first, self.second)[0]
        speed = "no rate of a usable pair is known"
        if whole.ratio is not None:
            ratio = whole.ratio
            speed = (
                f"{self.second} has {ratio.middle:.3f} of the decode tok/s of {self.first} "
                f"(95 %: {ratio.low:.3f} .. {ratio.high:.3f}, chance {chance_text(ratio.chance)}) "
                f"over {ratio.count} pairs usable twice"
            )
        return (
            f"{len(self.pairs)} pairs, {whole.both} usable twice, {lost} only in {self.first}, "
            f"{gained} only in {self.second} (chance {chance_text(sign_test(lost, gained))}), "
            f"{whole.same} with the same text; {speed}"
        )

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values, without texts."""
        return {
            "schema": SCHEMA,
            "summary": self.sentence,
            "first": origins(old for old, _ in self.pairs),
            "second": origins(new for _, new in self.pairs),
            "pairs": len(self.pairs),
            "alone": self.alone,
            "by": self.by,
            "gains": [gain.to_json() for gain in self.gains],
        }


def compare(
    before: Sequence[Verdict], after: Sequence[Verdict], names: tuple[str, str], by: str
) -> Comparison:
    """Pair two sets. Sets of one mode each are paired whatever the modes are.

    Raises UsageError when nothing has a partner, or a question stands twice in a set.
    """
    with_mode = not (_one_mode(before) and _one_mode(after))
    old, new = (_by_key(v, n, with_mode) for v, n in zip((before, after), names, strict=True))
    pairs = [(verdict, new[key]) for key, verdict in old.items() if key in new]
    if not pairs:
        raise UsageError(
            f"{names[0]} and {names[1]}: no response to the same question with the same seed, "
            "sampling and mode in both"
        )
    for one, other in pairs:
        if one.response.contract != other.response.contract:
            raise UsageError(
                f"{one.response.fixture}: its contract is another in {names[1]}; run it again"
            )
    return Comparison(*names, pairs, len(old) + len(new) - 2 * len(pairs), by)


def _one_mode(verdicts: Sequence[Verdict]) -> bool:
    return len({verdict.response.mode for verdict in verdicts}) == 1


def _by_key(verdicts: Sequence[Verdict], name: str, with_mode: bool) -> dict[Key, Verdict]:
    found: dict[Key, Verdict] = {}
    for verdict in verdicts:
        key = verdict.response.key if with_mode else verdict.response.key[:-1]
        if key in found:
            raise UsageError(f"{name}: {key[0]} with seed {key[2]} stands twice; give one run only")
        found[key] = verdict
    return found
