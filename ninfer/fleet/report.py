"""What `status` shows: every machine that bills or may, with its price, its cost and its end."""

from dataclasses import asdict, dataclass

from ninfer.errors import ProviderError, RefusedError
from ninfer.fleet.contract import Contract
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.money import Caps, month_committed, month_start, rate_of
from ninfer.fleet.provider import Provider, Snapshot
from ninfer.fleet.survey import survey


@dataclass(frozen=True, slots=True)
class Line:
    """One machine. `rate` in $/h now, `spent` and `left` in $, `minutes` until its end.

    `state` is the provider's word; "unknown" when the provider could not be asked, "not listed"
    when a whole list lacks it. `rate` and `left` are None when they are not known.
    """

    name: str
    provider: str
    machine_id: str
    stage: str
    state: str
    gpu: str
    rate: float | None
    stopped_rate: float | None
    spent: float
    left: float | None
    minutes: float | None
    disk: str
    ssh: str
    note: str


@dataclass(frozen=True, slots=True)
class Report:
    """All machines; `problems` say what could not be asked.

    `foreign` were rented by ninfer with other records, `others` of the account by other means.
    """

    lines: tuple[Line, ...]
    foreign: tuple[Line, ...]
    others: tuple[Line, ...]
    problems: tuple[str, ...]
    month_spent: float
    month_left: float

    def as_json(self) -> dict[str, object]:
        """The report as JSON data."""
        return asdict(self)


def report(fleet: Fleet, caps: Caps) -> Report:
    """Ask every provider that has machines in the records, and the vendor, once each."""
    lines: list[Line] = []
    foreign: list[Line] = []
    others: list[Line] = []
    problems: list[str] = []
    for name in sorted({row.provider for row in fleet.store.contracts()} - set(fleet.providers)):
        problems.append(f"{name}: cannot be asked; its key is not set")
        lines += [
            _line(fleet, row, None, "unknown", row.rate)
            for row in fleet.store.contracts()
            if row.provider == name
        ]
    for provider in fleet.providers.values():
        try:
            found = survey(fleet, provider)
        except (ProviderError, RefusedError) as error:
            problems.append(str(error))
            lines += [
                _line(fleet, row, None, "unknown", row.rate)
                for row in fleet.store.contracts()
                if row.provider == provider.name
            ]
            continue
        lines += [_seen(fleet, row, shot) for row, shot in found.seen]
        foreign += [_foreign(provider, shot, "other records") for shot in found.foreign]
        others += [_foreign(provider, shot, "not ninfer's") for shot in found.others]
    now = fleet.clock.now()
    rows = fleet.store.contracts()
    spent = fleet.store.spent_since(month_start(now))
    spent += sum(row.spent_at(now) - row.spent for row in rows)
    left = caps.month - month_committed(fleet.store, rows, now)
    return Report(tuple(lines), tuple(foreign), tuple(others), tuple(problems), spent, left)


def _seen(fleet: Fleet, row: Contract, shot: Snapshot | None) -> Line:
    if shot is None:
        return _line(fleet, row, None, "not listed", None)
    return _line(fleet, row, shot, shot.status, rate_of(row, shot))


def _line(
    fleet: Fleet, row: Contract, shot: Snapshot | None, state: str, rate: float | None
) -> Line:
    now = fleet.clock.now()
    spent = row.spent_at(now)
    return Line(
        name=row.name,
        provider=row.provider,
        machine_id=row.machine_id,
        stage=row.stage,
        state=state,
        gpu=row.gpu,
        rate=rate,
        stopped_rate=row.disk_price,
        spent=spent,
        left=row.budget - spent if row.budget else None,
        minutes=(row.ends - now) / 60 if row.ends else None,
        disk=_disk(shot),
        ssh=f"{shot.ssh.host}:{shot.ssh.port}" if shot and shot.ssh else "",
        note=row.note,
    )


def _disk(shot: Snapshot | None) -> str:
    if shot is None or shot.disk is None:
        return ""
    used = "?" if shot.disk_used is None or shot.disk_used < 0 else f"{shot.disk_used:.0f}"
    return f"{used}/{shot.disk:.0f}"


def _foreign(provider: Provider, shot: Snapshot, whose: str) -> Line:
    rate = {"gpu": shot.price, "disk": shot.disk_price, "nothing": 0.0}[shot.billing]
    return Line(
        name=shot.label or "no label",
        provider=provider.name,
        machine_id=shot.id,
        stage=whose,
        state=shot.status,
        gpu=shot.gpu,
        rate=rate,
        stopped_rate=shot.disk_price,
        spent=0.0,
        left=None,
        minutes=None,
        disk=_disk(shot),
        ssh="",
        note="",
    )
