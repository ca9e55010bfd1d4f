"""`create` as a transaction: a machine that serves, or none that bills."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ninfer.errors import (
    FleetError,
    HostBrokenError,
    OfferGoneError,
    OutcomeUnknownError,
    ProviderError,
    RefusedError,
    TimeLimitError,
    UsageError,
    VerificationError,
)
from ninfer.fleet.bad_hosts import bad_hosts, remember
from ninfer.fleet.box import Box
from ninfer.fleet.contract import Contract, Stage
from ninfer.fleet.dead_man import DeadMan, check_armed, renew
from ninfer.fleet.ending import destroy, named
from ninfer.fleet.failures import UNARMED
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.offers import Choice, choose
from ninfer.fleet.provider import Need, Offer, Provider, Snapshot, Spec
from ninfer.fleet.renting import Wish, intent, rent
from ninfer.fleet.ssh_keys import host_keys_in, pin
from ninfer.fleet.survey import survey
from ninfer.fleet.waiting import is_slow, wait_running, wait_ssh

# What makes a machine serve once it can be reached: a kit, an artifact, a supervised server.
Install = Callable[[Fleet, Contract, Snapshot], None]
MOST_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Creation:
    """How to create. `install` is None for a bare machine; `api` is where the vendor's API is."""

    need: Need
    wish: Wish
    public_key: str
    api: str
    offer: str = ""  # a number chosen by hand
    force: bool = False  # take the chosen offer though a criterion fails; caps hold all the same
    keep_on_failure: bool = False
    tries: int = MOST_TRIES
    install: Install | None = None


def create(fleet: Fleet, provider: Provider, creation: Creation) -> Contract:
    """Rent, wait, check, install; on any failure end the machine and try the next offer.

    However it leaves, by an error or by a signal, the machine is ended and its end confirmed, or
    OutcomeUnknownError names it. Raises the last failure when every try failed.
    """
    survey(fleet, provider)  # unless the whole list can be had now, nothing is rented
    fleet.store.refuse_taken(creation.wish.name)
    if provider.bills:
        candidates = _candidates(look_for(fleet, provider, creation.need), creation)
        _check_credit(fleet, provider, candidates[0].price or 0.0)
    else:
        candidates = provider.offers(creation.need)  # the machine itself, as it is
    failure: FleetError | None = None
    for offer in candidates[: creation.tries]:
        if failure is not None:
            fleet.say(f"{failure}; trying offer {offer.id}")
        try:
            return _attempt(fleet, provider, creation, offer)
        except (OfferGoneError, HostBrokenError, TimeLimitError, ProviderError) as error:
            failure = error
    assert failure is not None
    raise failure


def look_for(fleet: Fleet, provider: Provider, need: Need) -> Choice:
    """Search once and sort by every criterion, machines that failed before left out."""
    bad = {bad.machine for bad in bad_hosts(fleet.store) if bad.provider == provider.name}
    return choose(provider.offers(need), need, bad, fleet.clock.now())


def _candidates(choice: Choice, creation: Creation) -> Sequence[Offer]:
    if not creation.offer:
        choice.best()
        return choice.passed
    for offer in choice.passed:
        if offer.id == creation.offer:
            return [offer]
    for offer, reason in choice.failed:
        if offer.id == creation.offer:
            if creation.force and offer.price:
                return [offer]
            raise UsageError(f"offer {offer.id} fails a criterion ({reason}); --force takes it")
    raise OfferGoneError(f"offer {creation.offer} is not on the vendor's list for this need")


def _check_credit(fleet: Fleet, provider: Provider, price: float) -> None:
    """Refuse without credit for an hour; an unknown balance is said, not taken for zero."""
    balance = provider.balance()
    if balance is None:
        fleet.say("the vendor does not say how much credit is left")
    elif balance < price:
        raise RefusedError(f"credit is ${balance:.2f}, an hour costs ${price:.4f}; add credit")


def _attempt(fleet: Fleet, provider: Provider, creation: Creation, offer: Offer) -> Contract:
    with intent(fleet, provider, offer, creation.wish) as contract:
        fleet.say(
            f"{contract.name}: renting offer {offer.id}, {offer.gpu}, ${contract.price:.4f}/h, "
            f"{offer.place or 'place unknown'}"
        )
        dead_man = DeadMan(creation.api, contract.ends - contract.created, creation.wish.caps.idle)
        spec = Spec(
            contract.label,
            contract.image,
            contract.disk,
            dead_man.script(),
            creation.wish.ports,
        )
        try:
            contract = rent(fleet, contract, offer, spec)
            return _set_up(fleet, contract, creation)
        except BaseException as error:
            _leave(fleet, contract, error, keep=creation.keep_on_failure)
            raise


def _set_up(fleet: Fleet, contract: Contract, creation: Creation) -> Contract:
    """From a machine that was just rented to one that is ready."""
    provider = fleet.provider_of(contract)
    if provider.bills:
        provider.admit_key(contract.machine_id, creation.public_key)
    wait_running(fleet, contract)
    if provider.bills:
        pin_from_log(fleet, contract)
        wait_ssh(fleet, contract)
    shot = provider.get(contract.machine_id)
    if shot is None:
        raise HostBrokenError(f"{contract.name}: the machine is gone", category="never-ran")
    box = fleet.connect(contract, shot)
    try:
        if provider.bills:
            _check_armed(fleet, contract, box)
        if creation.install is not None:
            creation.install(fleet, contract, shot)
        if provider.bills:
            # Until a server runs and tells of its idleness, only the end of its life limits it.
            renew(box, contract.ends - fleet.clock.now())
    finally:
        box.close()
    return fleet.store.change(contract, "ready", stage=Stage.READY)


def _check_armed(fleet: Fleet, contract: Contract, box: Box) -> None:
    try:
        check_armed(box, fleet.clock.sleep)
    except VerificationError as error:
        category = UNARMED.category
        remember(fleet.store, contract.provider, contract.machine, category, str(error))
        raise


def pin_from_log(fleet: Fleet, contract: Contract) -> None:
    """Pin the host keys that the container printed, which come over the vendor's own TLS.

    Without them the first login pins what it meets, and says so.
    """
    try:
        log = fleet.provider_of(contract).log(contract.machine_id, lines=200)
    except (ProviderError, RefusedError) as error:
        fleet.say(f"{contract.name}: no log to take the host key from: {error}")
        return
    keys = host_keys_in(log)
    if keys:
        pin(fleet.settings.records, contract.host_alias, keys)


def _leave(fleet: Fleet, contract: Contract, error: BaseException, *, keep: bool) -> None:
    """End what was rented, whatever made us leave. Raises OutcomeUnknownError if it may bill on.

    The end comes before anything else that may fail, such as writing down why.
    """
    with suppress(FleetError):
        fresh = fleet.store.contract(contract.key)
        contract = fresh if fresh.machine_id or not contract.machine_id else contract
    if not contract.is_open or isinstance(error, OutcomeUnknownError):
        return
    reason = named(error)
    if keep and contract.machine_id and isinstance(error, FleetError):
        text = f"kept after a failure: {reason}"
        fleet.store.change(contract, text, note=reason, stage=Stage.READY)
        fleet.say(
            f"{contract.name} is kept and bills ${contract.price:.4f}/h; "
            f"'ninfer destroy {contract.name}' ends it"
        )
        return
    try:
        destroy(fleet, contract, reason)
        fleet.say(f"{contract.name}: ended, nothing of it bills")
    except (KeyboardInterrupt, SystemExit):
        raise OutcomeUnknownError(
            f"{contract.name} (machine {contract.machine_id or contract.label}) may bill: its end "
            "was interrupted; run 'ninfer reap'"
        ) from None
    finally:
        _blame(fleet, contract, error)


def _blame(fleet: Fleet, contract: Contract, error: BaseException) -> None:
    """Remember the machine if the failure was its own."""
    category = is_slow(error)
    if category and contract.machine_id and contract.machine:
        remember(fleet.store, contract.provider, contract.machine, category, named(error))
        fleet.say(f"machine {contract.machine} is avoided from now on ({category})")
