"""What a provider of machines offers: offers, machines, their states, and the calls that bill."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from ninfer.errors import RefusedError


class Phase(StrEnum):
    """What a machine does at the moment, as the provider says."""

    REQUESTED = "requested"
    PULLING = "pulling"
    STARTING = "starting"
    RUNNING = "running"
    FROZEN = "frozen"
    STOPPED = "stopped"
    OFFLINE = "offline"
    UNKNOWN = "unknown"


class Billing(StrEnum):
    """What a phase costs."""

    GPU = "gpu"
    DISK = "disk"
    NOTHING = "nothing"


# Where the provider's words leave it open, the dearer reading holds.
BILLING = {
    Phase.REQUESTED: Billing.DISK,
    Phase.PULLING: Billing.DISK,
    Phase.STARTING: Billing.GPU,
    Phase.RUNNING: Billing.GPU,
    Phase.FROZEN: Billing.GPU,
    Phase.STOPPED: Billing.DISK,
    Phase.OFFLINE: Billing.NOTHING,
    Phase.UNKNOWN: Billing.GPU,
}


@dataclass(frozen=True, slots=True)
class Need:
    """What an offer must have. Memory in MB, disk in GB, speed in Mbit/s, price in $/h.

    `disk` is what is rented and `free_disk` what the host must have. `hours` is the expected
    session and `setup_gb` what is downloaded first; both only rank.
    """

    gpu: str
    gpu_names: tuple[str, ...]
    gpu_ram: float
    disk: float
    free_disk: float
    cuda: float
    max_price: float
    hours: float
    lifetime: float  # seconds
    reliability: float = 0.995
    inet_down: float = 1000
    setup_gb: float = 25
    places: tuple[str, ...] = ()  # two-letter countries; empty: any


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine for rent. None is what the provider did not say; such an offer is not taken.

    `price` is $/h with the disk that was asked for, `disk_price` $/h of that disk alone,
    `down_cost` $/GB; `ends` is when the host takes the machine back, in seconds since 1970.
    """

    id: str
    machine: str
    host: str
    gpu: str
    gpus: int | None
    gpu_ram: float | None
    disk: float | None
    inet_down: float | None
    down_cost: float | None
    reliability: float | None
    cuda: float | None
    direct_ports: int | None
    verified: bool
    rentable: bool
    price: float | None
    disk_price: float | None
    ends: float | None
    place: str


@dataclass(frozen=True, slots=True)
class Spec:
    """What to start on a rented machine. `start` is a shell script for every start."""

    label: str
    image: str
    disk: float
    start: str
    ports: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Address:
    """Where and as whom to log in; host and port may change at every start."""

    host: str
    port: int
    user: str = "root"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One machine at one moment. Prices in $/h, None when the provider does not say.

    `status` and `message` are the provider's own words; `wants_running` is what it was last told.
    """

    id: str
    label: str
    phase: Phase
    status: str
    message: str
    gpu: str
    machine: str
    host: str
    price: float | None
    disk_price: float | None
    ssh: Address | None
    wants_running: bool
    disk: float | None = None
    disk_used: float | None = None
    api: Address | None = field(default=None)

    @property
    def billing(self) -> Billing:
        """What it costs now."""
        return BILLING[self.phase]


class StrayRentError(RefusedError):
    """The provider refused and still made a machine, `machine_id`, which bills."""

    def __init__(self, message: str, *, machine_id: str) -> None:
        super().__init__(message)
        self.machine_id = machine_id


class Provider(Protocol):
    """One source of machines.

    Every method may raise ProviderError (nothing was learnt; ask again later) and RefusedError. A
    method that cannot know says so by raising; an empty answer is a statement of the provider.
    """

    name: str
    bills: bool  # machines cost money, must be able to end themselves, and may be bad ones

    def offers(self, need: Need) -> list[Offer]:
        """Candidates; the caller checks each criterion again."""

    def balance(self) -> float | None:
        """Dollars of credit, None when there is no such thing."""

    def rent(self, offer: Offer, spec: Spec) -> str:
        """Start billing; returns the machine's id. Never sends the request twice.

        Raises OfferGoneError and RefusedError when certainly nothing was made, StrayRentError when
        something was, ProviderError when nothing was sent or it was turned away unread, and
        OutcomeUnknownError otherwise.
        """

    def get(self, machine_id: str) -> Snapshot | None:
        """The machine; None only if the provider said that there is none."""

    def machines(self) -> list[Snapshot]:
        """All machines of the account; raises ProviderError unless the answer is whole."""

    def start(self, machine_id: str) -> None:
        """Ask for it to run."""

    def stop(self, machine_id: str) -> None:
        """Ask for it to stop; its disk goes on billing."""

    def destroy(self, machine_id: str) -> None:
        """Ask for its end; a machine that is gone already counts as done."""

    def admit_key(self, machine_id: str, public_key: str) -> None:
        """Let the holder of an SSH key in."""

    def log(self, machine_id: str, lines: int) -> str:
        """The end of the container's own output; empty when it is not there yet."""
