"""What machines cost: counting as states change, and caps checked before anything is rented."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ninfer.errors import BudgetError
from ninfer.fleet.contract import Contract
from ninfer.fleet.provider import Billing, Offer, Snapshot
from ninfer.fleet.store import Store


@dataclass(frozen=True, slots=True)
class Caps:
    """Most dollars an hour, for one machine and for a month; longest life and idleness in s."""

    price: float
    budget: float
    month: float
    lifetime: float
    idle: float

    def lifetime_at(self, price: float, first: float) -> float:
        """Seconds until a machine must end: its longest life, or what the budget pays for.

        `first` is spent on downloads at the start. The machine enforces this end itself.
        """
        left = max(0.0, self.budget - first)
        return self.lifetime if price <= 0 else min(self.lifetime, left / price * 3600)


def first_cost(offer: Offer, setup_gb: float) -> float:
    """Dollars for what is downloaded first."""
    return setup_gb * (offer.down_cost or 0.0)


def rate_of(contract: Contract, snapshot: Snapshot) -> float:
    """$/h now; a price that the provider does not say is the one agreed on at first."""
    price = contract.price if snapshot.price is None else snapshot.price
    disk = contract.disk_price if snapshot.disk_price is None else snapshot.disk_price
    return {Billing.GPU: price, Billing.DISK: disk, Billing.NOTHING: 0.0}[snapshot.billing]


def count(store: Store, contract: Contract, snapshot: Snapshot, now: float) -> Contract:
    """Count what was spent since the last look, at the dearer of the two rates."""
    rate = rate_of(contract, snapshot)
    hours = max(0.0, now - contract.counted_until) / 3600
    return store.count(contract, now, max(contract.rate, rate) * hours, rate)


def count_until(store: Store, contract: Contract, now: float, rate: float) -> Contract:
    """Count what was spent since the last look at the old rate; from now on `rate` holds."""
    hours = max(0.0, now - contract.counted_until) / 3600
    return store.count(contract, now, contract.rate * hours, rate)


def month_start(now: float) -> float:
    """When the present calendar month began, UTC."""
    moment = time.gmtime(now)
    passed = (moment.tm_mday - 1) * 86400 + moment.tm_hour * 3600
    return now - passed - moment.tm_min * 60 - moment.tm_sec - now % 1


def month_committed(store: Store, rows: Sequence[Contract], now: float) -> float:
    """Dollars of this month that are spent, or will be at most by machines that are there."""
    counted = store.spent_since(month_start(now))
    return counted + sum(row.committed_at(now) - row.spent for row in rows)


def check_caps(store: Store, caps: Caps, price: float, first: float, now: float) -> float:
    """Seconds that a new machine may live. Raises BudgetError naming the cap and the remedy.

    Inside the transaction that writes the intent, so that two commands cannot share one budget.
    """
    if price > caps.price:
        raise BudgetError(
            f"${price:.4f}/h is above the cap of ${caps.price:.4f}/h; raise --max-price"
        )
    lifetime = caps.lifetime_at(price, first)
    if price > 0 and lifetime < min(3600.0, caps.lifetime):
        raise BudgetError(
            f"${caps.budget:.2f} pays for {lifetime / 60:.0f} minutes at ${price:.4f}/h after "
            f"${first:.2f} of downloads; raise --budget"
        )
    committed = month_committed(store, store.contracts(), now)
    wanted = first + price * lifetime / 3600
    if committed + wanted > caps.month:
        raise BudgetError(
            f"${wanted:.2f} for this machine and ${committed:.2f} spent or promised are above "
            f"${caps.month:.2f} a month; end a machine, shorten --lifetime or raise --month-budget"
        )
    return lifetime
