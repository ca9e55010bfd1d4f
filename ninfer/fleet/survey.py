"""What the provider lists, compared with the records: nothing is forgotten, nothing unknown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ninfer.errors import FleetError
from ninfer.fleet.contract import Contract, Stage, records_of_label
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.locks import is_locked
from ninfer.fleet.money import count, count_until
from ninfer.fleet.provider import Provider, Snapshot

# A machine may be missing from lists for as long as this after it was made.
GRACE: Final = 180.0


@dataclass(frozen=True, slots=True)
class Survey:
    """One whole list of a provider.

    `foreign` carry our kind of label but the number of other records; `others` are not ninfer's.
    """

    seen: tuple[tuple[Contract, Snapshot | None], ...]
    foreign: tuple[Snapshot, ...]
    others: tuple[Snapshot, ...]

    def snapshot_of(self, contract: Contract) -> Snapshot | None:
        """What the list says of a machine."""
        return next((shot for row, shot in self.seen if row.key == contract.key), None)


def survey(fleet: Fleet, provider: Provider) -> Survey:
    """List once and bring the records up to it.

    Machines with a label of ours and no row get one, called `orphan-NUMBER`. Raises ProviderError
    when the list is not whole, with nothing changed.
    """
    began = fleet.clock.now()
    shots = provider.machines()
    # Read after the list: whatever it holds of ours had its row written before it was rented.
    rows = [row for row in fleet.store.contracts(closed=True) if row.provider == provider.name]
    open_rows = [row for row in rows if row.is_open]
    seen: list[tuple[Contract, Snapshot | None]] = []
    for row in open_rows:
        shot = _match(row, shots)
        seen.append((_updated(fleet, provider, row, shot), shot))
    known = {shot.id for _, shot in seen if shot}
    known |= {row.machine_id for row in open_rows}
    ended = {row.machine_id for row in rows if not row.is_open and row.counted_until >= began}
    left = [shot for shot in shots if shot.id not in known | ended]
    ours = [shot for shot in left if records_of_label(shot.label) == fleet.store.id]
    for shot in ours:
        fleet.say(f"{shot.id} ({shot.label}) bills without a record; 'ninfer reap' ends it")
        seen.append((adopt(fleet, provider, shot, rows), shot))
    foreign = [s for s in left if records_of_label(s.label) not in (None, fleet.store.id)]
    seen = [(row, shot) for row, shot in seen if row.is_open]
    others = [shot for shot in left if records_of_label(shot.label) is None]
    return Survey(tuple(seen), tuple(foreign), tuple(others))


def _match(row: Contract, shots: Sequence[Snapshot]) -> Snapshot | None:
    if row.machine_id:
        return next((shot for shot in shots if shot.id == row.machine_id), None)
    return next((shot for shot in shots if shot.label == row.label), None)


def _updated(fleet: Fleet, provider: Provider, row: Contract, shot: Snapshot | None) -> Contract:
    if is_locked(fleet.store.folder, row.key):
        return row  # another command writes this row
    if row.stage is Stage.INTENT and not row.rent_called:
        return close(fleet, row, "never rented: its command ended before the call")
    if shot is None:
        return _missing(fleet, provider, row)
    if not row.machine_id:
        row = take_number(fleet, row, shot.id, "found by its label as")
    return count(fleet.store, row, shot, fleet.clock.now())


def _missing(fleet: Fleet, provider: Provider, row: Contract) -> Contract:
    """A row that the list lacks: closed only if the provider says so of that one machine too."""
    now = fleet.clock.now()
    if not row.machine_id or now - row.created < GRACE or provider.get(row.machine_id) is not None:
        return row
    why = "the provider has it no more; it ended itself or was ended by hand"
    return close(fleet, row, why, until=max(row.ends, row.counted_until))


def take_number(fleet: Fleet, row: Contract, machine_id: str, how: str) -> Contract:
    """Note a machine's number, and what its first downloads cost.

    On a disk that takes no more the number holds for this process, which can still end the machine.
    """
    stage = Stage.ENDING if row.stage is Stage.ENDING else Stage.RENTED
    known = replace(row, machine_id=machine_id, stage=stage)
    try:
        row = fleet.store.change(row, f"{how} {machine_id}", machine_id=machine_id, stage=stage)
        return fleet.store.count(row, row.counted_until, row.first, row.rate)
    except FleetError as error:
        fleet.say(f"{row.name}: machine {machine_id} is not in the records: {error}")
        return known


def close(fleet: Fleet, row: Contract, why: str, until: float = math.inf) -> Contract:
    """Close a row whose machine is certainly gone, after a last count up to `until` at most."""
    if row.machine_id:
        row = count_until(fleet.store, row, min(fleet.clock.now(), until), 0.0)
    return fleet.store.change(row, why, stage=Stage.CLOSED, note=why)


def adopt(
    fleet: Fleet, provider: Provider, shot: Snapshot, rows: Sequence[Contract] = ()
) -> Contract:
    """A row for a machine that bills without one; what an earlier row of its label knew is kept."""
    now = fleet.clock.now()
    earlier = next((row for row in reversed(rows) if row.label == shot.label), None)
    since = earlier.created if earlier else now
    price, disk_price = shot.price or 0.0, shot.disk_price or 0.0
    row: dict[str, object] = {
        "name": f"orphan-{shot.id}",
        "provider": provider.name,
        "label": shot.label,
        "stage": Stage.RENTED,
        "machine_id": shot.id,
        "machine": shot.machine,
        "host": shot.host,
        "gpu": shot.gpu,
        "price": price,
        "disk_price": disk_price,
        "created": since,
        "counted_until": since,
        "rate": price,
        "note": "found without a row",
    }
    with fleet.store.transaction():
        return fleet.store.add(row, "found on the provider's list without a row")
