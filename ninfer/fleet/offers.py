"""Which offers are taken: every criterion checked here again, then the cheapest session first."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from ninfer.cards import cards_named
from ninfer.errors import NoOfferError
from ninfer.fleet.provider import Need, Offer

# The host must not take the machine back for as long as it may live, and this on top.
_SLACK: Final = 3600.0
_MOST_MISSES: Final = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """Offers that pass, best first, and those that do not, each with its first failing."""

    passed: tuple[Offer, ...]
    failed: tuple[tuple[Offer, str], ...]

    def counts(self) -> dict[str, int]:
        """How many offers each criterion removed."""
        found: dict[str, int] = {}
        for _, reason in self.failed:
            name = reason.partition(":")[0]
            found[name] = found.get(name, 0) + 1
        return found

    def best(self) -> Offer:
        """The first. Raises NoOfferError with what each criterion removed, and near misses."""
        if self.passed:
            return self.passed[0]
        if not self.failed:
            raise NoOfferError("the provider offers no such machine now; try later or another card")
        removed = ", ".join(f"{name} {count}" for name, count in self.counts().items())
        near = sorted(self.failed, key=lambda pair: pair[0].price or float("inf"))[:_MOST_MISSES]
        misses = "; ".join(f"{offer.id} ({reason})" for offer, reason in near)
        raise NoOfferError(f"no offer is left; removed by {removed}; cheapest of them: {misses}")


def choose(offers: Sequence[Offer], need: Need, bad: Collection[str], now: float) -> Choice:
    """Sort offers by passing; `bad` are machine numbers that are avoided."""
    passed: list[Offer] = []
    failed: list[tuple[Offer, str]] = []
    for offer in offers:
        reason = failing(offer, need, bad, now)
        if reason:
            failed.append((offer, reason))
        else:
            passed.append(offer)
    passed.sort(key=lambda offer: (session_cost(offer, need), -(offer.reliability or 0)))
    return Choice(tuple(passed), tuple(failed))


def failing(offer: Offer, need: Need, bad: Collection[str], now: float) -> str:
    """The first criterion that an offer fails, with the value; empty if it passes all."""
    checks: tuple[tuple[str, object, Callable[[], bool]], ...] = (
        ("bad host", offer.machine, lambda: offer.machine not in bad),
        ("not rentable", offer.id, lambda: offer.rentable and offer.verified),
        ("card", offer.gpu, lambda: _same_card(offer.gpu, need)),
        ("cards", offer.gpus, lambda: offer.gpus == 1),
        ("price", offer.price, lambda: 0 < _known(offer.price) <= need.max_price),
        ("disk price", offer.disk_price, lambda: _known(offer.disk_price) >= 0),
        ("download price", offer.down_cost, lambda: _known(offer.down_cost) >= 0),
        ("disk", offer.disk, lambda: _known(offer.disk) >= need.free_disk),
        ("memory", offer.gpu_ram, lambda: _known(offer.gpu_ram) >= need.gpu_ram),
        ("CUDA", offer.cuda, lambda: _known(offer.cuda) >= need.cuda),
        ("download", offer.inet_down, lambda: _known(offer.inet_down) >= need.inet_down),
        ("reliability", offer.reliability, lambda: _known(offer.reliability) >= need.reliability),
        ("ports", offer.direct_ports, lambda: _known(offer.direct_ports) >= 1),
        ("end", offer.ends, lambda: _known(offer.ends) >= now + need.lifetime + _SLACK),
        ("place", offer.place, lambda: _in_place(offer.place, need.places)),
    )
    return next((f"{name}: {value}" for name, value, holds in checks if not holds()), "")


def _known(value: float | None) -> float:
    return float("-inf") if value is None else value


def _same_card(name: str, need: Need) -> bool:
    wanted = {card.name for card in cards_named(need.gpu)}
    return bool(wanted & {card.name for card in cards_named(name)})


def _in_place(place: str, wanted: Sequence[str]) -> bool:
    return not wanted or place.rpartition(",")[2].strip().upper() in wanted


def setup_seconds(offer: Offer, need: Need) -> float:
    """How long the first downloads take at the host's stated speed."""
    return need.setup_gb * 8000 / offer.inet_down if offer.inet_down else 0.0


def session_cost(offer: Offer, need: Need) -> float:
    """Expected dollars of a session: hours, downloads, and the time that downloads take."""
    hours = need.hours + setup_seconds(offer, need) / 3600
    return (offer.price or 0.0) * hours + need.setup_gb * (offer.down_cost or 0.0)
