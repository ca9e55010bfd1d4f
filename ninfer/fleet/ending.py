"""Ending a machine, which is done only when the provider no longer lists it."""

from contextlib import suppress
from typing import Final

from ninfer.errors import FleetError, OutcomeUnknownError, ProviderError, RefusedError
from ninfer.fleet.contract import Contract, Stage
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.survey import close, take_number

_TRIES: Final = 10
_PAUSE: Final = 10.0
# After a rent call whose outcome is unknown, a machine may appear on the list for so long.
SETTLE: Final = 120.0
_SETTLE_POLL: Final = 5.0
_SETTLE_LIMIT: Final = 300.0


def destroy(fleet: Fleet, contract: Contract, why: str) -> Contract:
    """End a machine and confirm it by asking for it and by the whole list; returns the closed row.

    The row says `ending` before the first call and stays so unless the end is certain. Raises
    OutcomeUnknownError naming what may still bill.
    """
    try:
        contract = fleet.store.change(contract, f"end asked for: {why}", stage=Stage.ENDING)
    except FleetError as error:
        fleet.say(f"{error}; {contract.name} is ended all the same")
    if not contract.machine_id:
        contract = settle(fleet, contract)
        if not contract.is_open:
            return contract
    said = ""
    for left in reversed(range(_TRIES)):
        try:
            fleet.provider_of(contract).destroy(contract.machine_id)
            if is_gone(fleet, contract):
                return close(fleet, contract, f"ended: {why}")
            said = "the provider still lists it"
        except (ProviderError, RefusedError) as error:
            said = str(error)
        if left:
            fleet.clock.sleep(_PAUSE)
    with suppress(FleetError):  # what follows matters more
        fleet.store.change(contract, f"end not confirmed: {said}", note=said)
    raise OutcomeUnknownError(
        f"{contract.name} (machine {contract.machine_id}) may still bill "
        f"${contract.price:.4f}/h: {said}; run 'ninfer reap', or end it on the vendor's page"
    )


def named(error: BaseException) -> str:
    """What an error says, or its kind if it says nothing, as Ctrl-C does."""
    return str(error) or type(error).__name__


def is_gone(fleet: Fleet, contract: Contract) -> bool:
    """Whether the provider has it no more, by both ways to ask. Raises ProviderError."""
    provider = fleet.provider_of(contract)
    if provider.get(contract.machine_id) is not None:
        return False
    return contract.machine_id not in {shot.id for shot in provider.machines()}


def settle(fleet: Fleet, contract: Contract) -> Contract:
    """Find out what became of a rent call: the row gets the machine's number, or is closed.

    A call that was never made is closed at once. Otherwise whole lists are read until the machine
    is found by its label, or until one long enough after the call lacks it. Raises
    OutcomeUnknownError when no such list can be had.
    """
    if not contract.rent_called:
        return close(fleet, contract, "never rented")
    began, said = fleet.clock.now(), "no whole list"
    while fleet.clock.now() - began < _SETTLE_LIMIT:
        asked = fleet.clock.now()
        try:
            shots = fleet.provider_of(contract).machines()
        except FleetError as error:
            said = str(error)
        else:
            found = next((shot for shot in shots if shot.label == contract.label), None)
            if found is not None:
                return take_number(fleet, contract, found.id, "found by its label as")
            if asked - contract.rent_called >= SETTLE:
                return close(fleet, contract, "no machine came of the rent call")
        fleet.clock.sleep(_SETTLE_POLL)
    raise OutcomeUnknownError(
        f"{contract.name}: it is not known whether a machine labelled {contract.label} was rented: "
        f"{said}; run 'ninfer reap' when the vendor answers"
    )
