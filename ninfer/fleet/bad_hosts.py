"""Machines that failed: remembered with the reason, avoided until that expires."""

from dataclasses import dataclass

from ninfer.errors import NoInstanceError
from ninfer.fleet.failures import avoid_seconds
from ninfer.fleet.store import Store


@dataclass(frozen=True, slots=True)
class BadHost:
    """One failing of one machine; times in seconds since 1970."""

    provider: str
    machine: str
    category: str
    reason: str
    times: int
    last: float
    expires: float


def remember(store: Store, provider: str, machine: str, category: str, reason: str) -> None:
    """Note a failure. Each further one of a kind doubles the time, up to eight times."""
    avoid, now = avoid_seconds(category), store.clock.now()
    if not machine or avoid <= 0:
        return
    earlier = [
        bad for bad in bad_hosts(store) if (bad.provider, bad.machine) == (provider, machine)
    ]
    times = 1 + max((bad.times for bad in earlier if bad.category == category), default=0)
    store.execute(
        "INSERT OR REPLACE INTO bad_hosts VALUES (?, ?, ?, ?, ?, ?, ?)",
        (provider, machine, category, reason, times, now, now + avoid * 2 ** min(times - 1, 3)),
    )


def bad_hosts(store: Store) -> list[BadHost]:
    """All that have not expired, the latest first."""
    rows = store.query(
        "SELECT * FROM bad_hosts WHERE expires > ? ORDER BY last DESC", (store.clock.now(),)
    )
    return [BadHost(**dict(row)) for row in rows]


def forget(store: Store, machine: str) -> None:
    """Give a machine another chance. Raises NoInstanceError if it is not in the list."""
    if not store.execute("DELETE FROM bad_hosts WHERE machine = ?", (machine,)):
        raise NoInstanceError(f"machine {machine}: not in the list; 'ninfer badhosts' shows it")
