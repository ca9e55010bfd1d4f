"""One machine in our records: what was meant, what is known, what it has cost."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_LABEL: Final = re.compile(r"ninfer\.([0-9a-f]{8})\.([a-z0-9-]{1,32})\.([0-9a-f]{12})")


class Stage(StrEnum):
    """How far a machine is in its life; all but CLOSED may bill."""

    INTENT = "intent"  # written before the rent call
    RENTED = "rented"  # the machine exists and is being set up
    READY = "ready"
    STOPPED = "stopped"
    ENDING = "ending"  # its end was asked for and is not confirmed
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Contract:
    """One row of the records. Prices in $/h, times in seconds since 1970, amounts in $.

    `machine_id` is the provider's number, empty until it is known; `first` is what its first
    downloads cost. `spent` holds up to
    `counted_until`; since then the machine bills at `rate`. `ends` is when it destroys itself.
    """

    key: int
    name: str
    provider: str
    label: str
    stage: Stage
    machine_id: str
    offer: str
    machine: str
    host: str
    gpu: str
    image: str
    disk: float
    price: float
    disk_price: float
    first: float
    budget: float
    created: float
    ends: float
    spent: float
    counted_until: float
    rate: float
    note: str
    rent_called: float  # 0 until just before the rent call

    @property
    def host_alias(self) -> str:
        """The name under which its host key is pinned: that of the rent, or of the own machine."""
        own = self.provider.partition(":")[2]
        return alias_of(own) if own else self.label

    @property
    def is_open(self) -> bool:
        """Whether it may bill."""
        return self.stage is not Stage.CLOSED

    def spent_at(self, now: float) -> float:
        """What it has cost until now, if nothing changed since the last look."""
        return self.spent + self.rate * max(0.0, now - self.counted_until) / 3600

    def committed_at(self, now: float) -> float:
        """What it will have cost at most when it destroys itself."""
        to_come = 0.0 if self.machine_id else self.first
        return self.spent_at(now) + to_come + self.price * max(0.0, self.ends - now) / 3600


def make_label(records: str, name: str, nonce: str) -> str:
    """The vendor's label of a machine: whose records it is in, its name, and the rent call."""
    return f"ninfer.{records}.{name}.{nonce}"


def alias_of(host: str) -> str:
    """A machine of one's own as a name that files and lists of host keys can hold."""
    return "own." + re.sub(r"[^A-Za-z0-9.-]", "_", host)


def records_of_label(label: str) -> str | None:
    """Which records a label names; None for a label that is not ours."""
    match = _LABEL.fullmatch(label)
    return match[1] if match else None
