"""Waiting for a machine's state: limits that real progress extends, failures heard at once."""

from dataclasses import dataclass
from typing import Final

from ninfer.errors import HostBrokenError, ProviderError, RefusedError, TimeLimitError
from ninfer.fleet.contract import Contract
from ninfer.fleet.failures import ACCOUNT, NEVER_RAN, NO_SSH, SLOW, failure_of_start
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.provider import Phase, Snapshot
from ninfer.fleet.survey import GRACE

_POLL: Final = 5.0
# Some hosts cannot get their GPU back from another renter; the vendor says nothing about it.
_SCHEDULED_WITHIN: Final = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: `quiet` without any news, `total` in all."""

    quiet: float
    total: float


CREATE: Final = Limits(900, 2700)
START: Final = Limits(300, 900)
STOP: Final = Limits(300, 300)
SSH: Final = Limits(300, 300)


def wait_running(fleet: Fleet, contract: Contract) -> Snapshot:
    """Poll a new machine until it runs.

    Raises HostBrokenError as soon as the provider's words or states say that it never will,
    TimeLimitError when nothing changes for too long; an answer that cannot be had is no news.
    """
    watch = _Watch(fleet, CREATE)
    while True:
        shot = _look(fleet, contract, watch)
        if shot is not None:
            if shot.phase is Phase.RUNNING:
                return shot
            _raise_failure(contract, shot)
        watch.pause(f"{contract.name} does not run")


def _raise_failure(contract: Contract, shot: Snapshot) -> None:
    failure = failure_of_start(shot)
    if failure is ACCOUNT:
        raise RefusedError(f"{contract.name}: {shot.message}")
    if failure is not None:
        said = shot.message or f"state {shot.status}"
        raise HostBrokenError(
            f"machine {shot.machine} cannot start {contract.name}: {said}",
            category=failure.category,
        )


def wait_started(fleet: Fleet, contract: Contract) -> Snapshot:
    """Poll a machine that was stopped until it runs again.

    Raises TimeLimitError when its GPU is taken by another or nothing changes, HostBrokenError as
    `wait_running` does.
    """
    watch = _Watch(fleet, START)
    while True:
        shot = _look(fleet, contract, watch)
        if shot is not None and shot.phase is Phase.RUNNING:
            return shot
        if shot is not None and shot.phase is Phase.STOPPED:
            if watch.passed > _SCHEDULED_WITHIN:
                raise TimeLimitError(
                    f"{contract.name}: its GPU is taken by another ({shot.status} for "
                    f"{watch.passed:.0f} s after the start)"
                )
        elif shot is not None:
            _raise_failure(contract, shot)
        watch.pause(f"{contract.name} does not run")


def wait_stopped(fleet: Fleet, contract: Contract) -> Snapshot:
    """Poll until it no longer runs. Raises TimeLimitError; until then it may bill for the GPU."""
    watch = _Watch(fleet, STOP)
    while True:
        shot = _look(fleet, contract, watch)
        if shot is not None and shot.phase is Phase.STOPPED:
            return shot
        watch.pause(f"{contract.name} does not stop and bills on")


def wait_ssh(fleet: Fleet, contract: Contract) -> None:
    """Log in until it works; the address is looked up each time. Raises HostBrokenError at last."""
    watch = _Watch(fleet, SSH)
    while True:
        shot = _look(fleet, contract, watch)
        if shot is not None and shot.phase is not Phase.RUNNING:
            _raise_failure(contract, shot)
        try:
            if shot is not None and shot.ssh is not None:
                fleet.connect(contract, shot).close()
                return
            watch.said = "no address for ssh"
        except HostBrokenError as error:
            watch.said = str(error)
        try:
            watch.pause(f"nobody lets us in at {contract.name}")
        except TimeLimitError as error:
            raise HostBrokenError(
                f"{error}; the host may never have written the key", category=NO_SSH.category
            ) from None


class _Watch:
    """How long the wait lasts, and what was last heard."""

    def __init__(self, fleet: Fleet, limits: Limits) -> None:
        self._clock = fleet.clock
        self._say = fleet.say
        self._limits = limits
        self._began = self._heard = fleet.clock.now()
        self.said = ""

    @property
    def passed(self) -> float:
        """Seconds since the wait began."""
        return self._clock.now() - self._began

    def hear(self, text: str) -> None:
        """Take news; a text that differs from the last is progress."""
        if text != self.said:
            self.said = text
            self._heard = self._clock.now()
            self._say(text)

    def pause(self, failing: str) -> None:
        """Sleep, or raise TimeLimitError when it took too long."""
        quiet = self._clock.now() - self._heard
        if quiet >= self._limits.quiet or self.passed >= self._limits.total:
            last = f"; last: {self.said}" if self.said else ""
            raise TimeLimitError(f"{failing} after {self.passed:.0f} s{last}")
        self._clock.sleep(_POLL)


def _look(fleet: Fleet, contract: Contract, watch: _Watch) -> Snapshot | None:
    """One look; None when the provider's answer was no answer, or the machine is too new."""
    try:
        shot = fleet.provider_of(contract).get(contract.machine_id)
    except ProviderError as error:
        fleet.say(f"{contract.name}: {error}")
        return None
    if shot is None:
        if fleet.clock.now() - contract.created >= GRACE:
            raise HostBrokenError(
                f"{contract.name}: the provider has machine {contract.machine_id} no more",
                category=NEVER_RAN.category,
            )
        return None
    watch.hear(f"{contract.name}: {shot.status} {shot.message}".strip())
    return shot


def is_slow(error: BaseException) -> str:
    """The category under which a wait that ended this way is remembered, empty if it is not."""
    if isinstance(error, HostBrokenError):
        return error.category
    return SLOW.category if isinstance(error, TimeLimitError) else ""
