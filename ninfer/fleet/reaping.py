"""`reap`: find what bills without reason, and end it."""

from dataclasses import dataclass

from ninfer.errors import ExistsError, OutcomeUnknownError
from ninfer.fleet.contract import Contract, Stage
from ninfer.fleet.ending import destroy, settle
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.locks import is_locked, machine_lock
from ninfer.fleet.provider import Provider, Snapshot
from ninfer.fleet.survey import Survey, adopt, survey


@dataclass(frozen=True, slots=True)
class Reaped:
    """What was ended, what other records own, and what could not be ended, with the reason."""

    ended: tuple[str, ...]
    foreign: tuple[Snapshot, ...]
    failed: tuple[tuple[str, str], ...]


def reap(fleet: Fleet, provider: Provider, *, foreign: bool = False) -> Reaped:
    """End machines whose command died, whose end is unconfirmed, whose time is over, or that
    nobody recorded; with `foreign` also those of other records on the same account.

    Raises ProviderError when the list is not whole; nothing is concluded then.
    """
    found = survey(fleet, provider)
    rows = [row for row, _ in found.seen]
    if foreign:
        rows += [adopt(fleet, provider, shot) for shot in found.foreign]
    ended: list[str] = []
    failed: list[tuple[str, str]] = []
    for row in rows:
        why = _reason(fleet, row) or ("asked for" if row.label in _labels(found) else "")
        if not why or is_locked(fleet.store.folder, row.key):
            continue
        try:
            with machine_lock(fleet.store.folder, row.key, row.name):
                done = _end(fleet, row, why)
            ended.append(f"{row.name} ({why}): {done.note}")
        except (OutcomeUnknownError, ExistsError) as error:
            failed.append((row.name, str(error)))
    return Reaped(tuple(ended), () if foreign else found.foreign, tuple(failed))


def _labels(found: Survey) -> set[str]:
    return {shot.label for shot in found.foreign}


def _reason(fleet: Fleet, row: Contract) -> str:
    """Why a machine must go; empty for one that is wanted."""
    if row.stage in (Stage.INTENT, Stage.RENTED):
        return row.note or "its creation did not finish"
    if row.stage is Stage.ENDING:
        return "its end was not confirmed"
    if row.stage is Stage.READY and 0 < row.ends < fleet.clock.now():
        return "its lifetime is over"
    if row.spent_at(fleet.clock.now()) > row.budget > 0:
        return "its budget is spent"
    return ""


def _end(fleet: Fleet, row: Contract, why: str) -> Contract:
    with fleet.store.transaction():
        row = fleet.store.contract(row.key)
    if not row.is_open:
        return row
    if not row.machine_id:
        row = settle(fleet, row)
        if not row.is_open:
            return row
    return destroy(fleet, row, why)
