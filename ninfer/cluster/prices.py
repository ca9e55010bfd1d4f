"""What the machines of replicas cost: one price for each, or the offers that there are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ninfer.errors import UsageError
from ninfer.json_text import parse_json


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars an hour of each machine, the cheapest first; `endless` where the last one repeats."""

    each: tuple[float, ...]
    endless: bool = False

    def hour(self, replicas: int) -> float | None:
        """Dollars an hour of the cheapest machines; None where fewer are offered."""
        more = replicas - len(self.each)
        if more > 0 and not self.endless:
            return None
        return sum(self.each[:replicas]) + max(more, 0) * self.each[-1]


def read_offers(path: Path) -> Prices:
    """The prices of a file that `ninfer offers --json` wrote. Raises UsageError naming it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--offers {path}: {error}") from None
    value = parse_json(text, f"--offers {path}", UsageError)
    offers = value.get("offers") if isinstance(value, Mapping) else None
    found = [
        float(offer["price"])
        for offer in (offers if isinstance(offers, list) else ())
        if isinstance(offer, Mapping) and isinstance(offer.get("price"), int | float)
    ]
    if not found:
        raise UsageError(
            f"--offers {path}: has no offers with a price; write it by 'ninfer offers --json'"
        )
    return Prices(tuple(sorted(found)))
