"""`up`, `down` and `destroy`: one machine that is in the records."""

from ninfer.errors import (
    BudgetError,
    FleetError,
    HostBrokenError,
    NoInstanceError,
    OutcomeUnknownError,
    RefusedError,
    TimeLimitError,
)
from ninfer.fleet.contract import Contract, Stage
from ninfer.fleet.dead_man import check_armed, renew
from ninfer.fleet.ending import destroy, named
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.locks import machine_lock
from ninfer.fleet.money import Caps, count, count_until, month_committed
from ninfer.fleet.provider import Phase, Snapshot
from ninfer.fleet.survey import adopt, close
from ninfer.fleet.waiting import wait_ssh, wait_started, wait_stopped


def end(fleet: Fleet, contract: Contract) -> Contract:
    """Destroy on request. Raises OutcomeUnknownError unless the end is certain."""
    with machine_lock(fleet.store.folder, contract.key, contract.name):
        return destroy(fleet, contract, "asked for")


def down(fleet: Fleet, contract: Contract) -> tuple[Contract, Snapshot]:
    """Stop, and wait until it is stopped. Raises TimeLimitError: it may bill for the GPU then."""
    with machine_lock(fleet.store.folder, contract.key, contract.name):
        shot = present(fleet, contract)
        if shot.phase is not Phase.STOPPED or shot.wants_running:
            fleet.store.change(contract, "stop asked for")
            shot = _stop(fleet, contract)
        return _stopped(fleet, contract, shot), shot


def _stop(fleet: Fleet, contract: Contract) -> Snapshot:
    fleet.provider_of(contract).stop(contract.machine_id)
    return wait_stopped(fleet, contract)


def _stopped(fleet: Fleet, contract: Contract, shot: Snapshot) -> Contract:
    contract = count(fleet.store, contract, shot, fleet.clock.now())
    return fleet.store.change(contract, "stopped", stage=Stage.STOPPED)


def up(fleet: Fleet, contract: Contract, life: float) -> tuple[Contract, Snapshot]:
    """Start a stopped machine, give it `life` seconds, and wait until it lets us in.

    One that does not come up is stopped again, so that it does not start billing hours later when
    its GPU is free; the failure is raised after that.
    """
    with machine_lock(fleet.store.folder, contract.key, contract.name):
        shot = present(fleet, contract)
        if shot.phase is Phase.RUNNING:
            return _revive(fleet, contract, shot, life)
        fleet.store.change(contract, "start asked for")
        contract = count_until(fleet.store, contract, fleet.clock.now(), contract.price)
        try:
            fleet.provider_of(contract).start(contract.machine_id)
            wait_started(fleet, contract)
            if fleet.provider_of(contract).bills:
                wait_ssh(fleet, contract)
            return _revive(fleet, contract, present(fleet, contract), life)
        except BaseException as error:
            _put_back(fleet, contract, error)
            raise


def life_left(fleet: Fleet, contract: Contract, caps: Caps) -> float:
    """Seconds for which the caps let a machine run from now. Raises BudgetError."""
    now = fleet.clock.now()
    spent = contract.spent_at(now)
    life = caps.lifetime_at(contract.price, spent)
    if contract.price > 0 and life < min(3600.0, caps.lifetime):
        raise BudgetError(
            f"{contract.name}: ${spent:.2f} of ${caps.budget:.2f} are spent, which leaves "
            f"{life / 60:.0f} minutes at ${contract.price:.4f}/h; raise --budget"
        )
    others = [row for row in fleet.store.contracts() if row.key != contract.key]
    committed = month_committed(fleet.store, others, now) + contract.price * life / 3600
    if committed > caps.month:
        raise BudgetError(
            f"{contract.name}: ${committed:.2f} spent or promised are above ${caps.month:.2f} a "
            "month; shorten --lifetime or raise --month-budget"
        )
    return life


def _revive(
    fleet: Fleet, contract: Contract, shot: Snapshot, life: float
) -> tuple[Contract, Snapshot]:
    """Check that the machine can end itself, and set when it does."""
    bills = fleet.provider_of(contract).bills
    if bills:
        box = fleet.connect(contract, shot)
        try:
            check_armed(box, fleet.clock.sleep)
            renew(box, life, life)
        finally:
            box.close()
    now = fleet.clock.now()
    contract = count(fleet.store, contract, shot, now)
    ends = now + life if bills else 0.0
    contract = fleet.store.change(contract, "runs", stage=Stage.READY, ends=ends)
    return contract, shot


def _put_back(fleet: Fleet, contract: Contract, error: BaseException) -> None:
    try:
        shot = _stop(fleet, contract)
    except NoInstanceError:
        return
    except (FleetError, KeyboardInterrupt, SystemExit) as second:
        raise OutcomeUnknownError(
            f"{contract.name} did not come up ({named(error)}) and is told to "
            f"run: it may bill ${contract.price:.4f}/h ({named(second)}); run "
            f"'ninfer down {contract.name}' or 'ninfer destroy {contract.name}'"
        ) from None
    contract = _stopped(fleet, contract, shot)
    kind = type(error)
    if isinstance(error, TimeLimitError | HostBrokenError | RefusedError):
        text = (
            f"{error}; it is stopped again and bills ${contract.rate:.4f}/h for its disk; "
            f"'ninfer destroy {contract.name}' ends that, 'ninfer create' rents another"
        )
        if isinstance(error, HostBrokenError):
            raise HostBrokenError(text, category=error.category) from None
        raise kind(text) from None


def find(fleet: Fleet, name: str) -> Contract:
    """The machine of that name or number; without a name NINFER_INSTANCE, else the only one.

    A number that is not in the records is looked up at the vendor and taken in under its number, so
    that any machine of the account can be worked on. Raises NoInstanceError and UsageError.
    """
    wanted = name or fleet.settings.text("NINFER_INSTANCE")
    try:
        return fleet.store.named(wanted)
    except NoInstanceError:
        if not wanted.isdigit():
            raise
    provider = fleet.provider("vast")
    shot = provider.get(wanted)
    if shot is None:
        raise NoInstanceError(f"{wanted}: neither in the records nor at the vendor")
    row = adopt(fleet, provider, shot)
    return fleet.store.change(row, "taken in by its number", stage=Stage.READY)


def present(fleet: Fleet, contract: Contract) -> Snapshot:
    """The machine now. Raises NoInstanceError, and closes the row, when it is gone."""
    if not contract.machine_id:
        raise NoInstanceError(
            f"{contract.name}: it is not known yet whether it was rented; run 'ninfer reap'"
        )
    shot = fleet.provider_of(contract).get(contract.machine_id)
    if shot is None:
        close(fleet, contract, "the provider has it no more")
        raise NoInstanceError(f"{contract.name}: the provider has {contract.machine_id} no more")
    return shot
