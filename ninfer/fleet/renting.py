"""Renting one offer: the intent on disk first, one call, and certainty about its outcome."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ninfer.errors import FleetError, OutcomeUnknownError, ProviderError, RefusedError
from ninfer.fleet.contract import Contract, Stage, make_label
from ninfer.fleet.ending import destroy, settle
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.locks import machine_lock
from ninfer.fleet.money import Caps, check_caps, first_cost
from ninfer.fleet.provider import Offer, Provider, Spec, StrayRentError
from ninfer.fleet.survey import close, take_number


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be rented, whichever offer it becomes. `disk` in GB, `setup_gb` of downloads."""

    name: str
    image: str
    disk: float
    setup_gb: float
    caps: Caps
    ports: tuple[int, ...] = ()


@contextmanager
def intent(fleet: Fleet, provider: Provider, offer: Offer, wish: Wish) -> Iterator[Contract]:
    """Check the caps, write the row, and hold its lock: all before any money is spent.

    Raises BudgetError and ExistsError, with nothing written.
    """
    now, price = fleet.clock.now(), offer.price or 0.0
    first = first_cost(offer, wish.setup_gb)
    with ExitStack() as held:
        with fleet.store.transaction():
            lifetime = check_caps(fleet.store, wish.caps, price, first, now)
            row: dict[str, object] = {
                "name": wish.name,
                "provider": provider.name,
                "label": make_label(fleet.store.id, wish.name, secrets.token_hex(6)),
                "stage": Stage.INTENT,
                "offer": offer.id,
                "machine": offer.machine,
                "host": offer.host,
                "gpu": offer.gpu,
                "image": wish.image,
                "disk": wish.disk,
                "price": price,
                "disk_price": offer.disk_price or 0.0,
                "budget": wish.caps.budget,
                "created": now,
                "ends": now + lifetime if provider.bills else 0.0,
                "first": first,
                "counted_until": now,
                "rate": price,
            }
            contract = fleet.store.add(row, f"intent to rent offer {offer.id} at ${price:.4f}/h")
            # Before others see the row, so that nobody takes it for one left behind.
            held.enter_context(machine_lock(fleet.store.folder, contract.key, contract.name))
        yield contract


def rent(fleet: Fleet, contract: Contract, offer: Offer, spec: Spec) -> Contract:
    """Make the call that bills; returns the row with the machine's number.

    Raises OfferGoneError, RefusedError or ProviderError when certainly nothing was rented (the row
    is closed), OutcomeUnknownError when nobody knows (the row stays).
    """
    provider = fleet.provider_of(contract)
    contract = fleet.store.change(contract, "rent called", rent_called=fleet.clock.now())
    try:
        machine_id = provider.rent(offer, spec)
    except StrayRentError as error:
        contract = take_number(fleet, contract, error.machine_id, "made by a refusal:")
        destroy(fleet, contract, f"made by a refusal: {error}")
        raise RefusedError(f"{error}; the machine that it made is ended") from None
    except OutcomeUnknownError as error:
        fleet.say(f"{contract.name}: {error}; looking for it by its label")
        fleet.store.change(contract, f"outcome unknown: {error}")
        contract = settle(fleet, contract)
        if not contract.is_open:
            raise ProviderError(f"{contract.name}: {error}; no machine came of it") from None
        return contract
    except FleetError as error:
        close(fleet, contract, f"not rented: {error}")
        raise
    return take_number(fleet, contract, machine_id, "rented as")
