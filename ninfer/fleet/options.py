"""What a user may ask of the fleet's commands: defaults, help and checks."""

from dataclasses import dataclass
from typing import Final

from ninfer.cards import Card, cards_named
from ninfer.errors import UsageError
from ninfer.fleet.config import Settings
from ninfer.fleet.money import Caps
from ninfer.fleet.provider import Need
from ninfer.options import option

DEFAULT_IMAGE: Final = "nvidia/cuda:13.1.2-devel-ubuntu24.04"
# What a driver shows of the nominal memory, at least.
_SHOWN_MEMORY: Final = 0.93
# An artifact and a kit are downloaded onto the disk that is asked for, with room to unpack.
_SPARE_DISK: Final = 10.0
_SETUP_GB: Final = 25.0
_HOURS: Final = 2.0


@dataclass(frozen=True, slots=True)
class OfferOptions:
    """Which machine is wanted. A value that is not given is that of its variable."""

    gpu: str = option("rtx5090", "card, by any of its names", metavar="CARD")
    disk: float | None = option(
        None, "disk in GB, fixed for life", metavar="GB", unset="$NINFER_DISK, else by card"
    )
    max_price: float | None = option(
        None, "most dollars an hour", metavar="USD", unset="$NINFER_MAX_PRICE, else 1.00"
    )
    reliability: float | None = option(
        None, "least reliability from 0 to 1", metavar="R", unset="0.97 for a 3090, else 0.995"
    )
    download: float = option(1000.0, "least download speed in Mbit/s", metavar="MBIT")
    cuda: float | None = option(
        None, "least CUDA version of the driver", metavar="X.Y", unset="13.1 for a 5090, else 13.0"
    )
    country: tuple[str, ...] = option(
        (), "two-letter country; may be given again", metavar="CC", unset="any"
    )


@dataclass(frozen=True, slots=True)
class CapOptions:
    """What may be spent. A value that is not given is that of its variable."""

    budget: float | None = option(
        None, "most dollars for one machine", metavar="USD", unset="$NINFER_BUDGET, else 10"
    )
    month_budget: float | None = option(
        None,
        "most dollars in a calendar month",
        metavar="USD",
        unset="$NINFER_MONTH_BUDGET, else 50",
    )
    lifetime: float | None = option(
        None,
        "hours after which the machine destroys itself",
        metavar="H",
        unset="$NINFER_LIFETIME_HOURS, else 8",
    )
    idle: float | None = option(
        None,
        "minutes without a request after which it does so, once a server runs",
        metavar="MIN",
        unset="$NINFER_IDLE_MINUTES, else 20",
    )


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """How a machine is created."""

    name: str = option("box", "name of the machine in the records")
    image: str = option(DEFAULT_IMAGE, "container image")
    force: bool = option(False, "take the OFFER though it fails a criterion; caps hold")
    bare: bool = option(False, "install nothing on it")
    keep_on_failure: bool = option(False, "leave a machine that failed running, and billing")
    tries: int = option(3, "offers to try, one after another", metavar="N")
    provider: str = option("vast", "where from", choices=("vast", "ssh", "local", "sky"))
    host: str | None = option(
        None, "machine of one's own for --provider ssh: [USER@]HOST[:PORT]", metavar="HOST"
    )


def caps_of(settings: Settings, options: CapOptions, max_price: float | None = None) -> Caps:
    """The caps that hold: an option, else its variable, else the default."""

    def value(given: float | None, name: str) -> float:
        if given is not None and given < 0:
            raise UsageError(f"{name} {given}: must not be negative")
        return settings.number(name) if given is None else given

    caps = Caps(
        price=value(max_price, "NINFER_MAX_PRICE"),
        budget=value(options.budget, "NINFER_BUDGET"),
        month=value(options.month_budget, "NINFER_MONTH_BUDGET"),
        lifetime=value(options.lifetime, "NINFER_LIFETIME_HOURS") * 3600,
        idle=value(options.idle, "NINFER_IDLE_MINUTES") * 60,
    )
    for name, seconds in (("--lifetime", caps.lifetime), ("--idle", caps.idle)):
        if seconds < 60:
            raise UsageError(f"{name}: {seconds:.0f} seconds are less than a minute")
    return caps


def need_of(settings: Settings, options: OfferOptions, caps: Caps) -> Need:
    """The criteria for an offer. Raises UsageError for a card that nobody knows."""
    cards = cards_named(options.gpu)
    if not cards:
        raise UsageError(
            f"--gpu {options.gpu}: no such card; names are those of rtx5090, h200, l40s"
        )
    card = max(cards, key=lambda card: card.memory_gib)
    disk = disk_of(settings, options, card)
    reliability = 0.97 if card.capability == 86 else 0.995
    return Need(
        gpu=options.gpu,
        gpu_names=tuple(sorted({name for card in cards for name in _spellings(card)})),
        gpu_ram=_SHOWN_MEMORY * min(card.memory_gib for card in cards) * 1024,
        disk=disk,
        free_disk=disk + _SPARE_DISK,
        cuda=(13.1 if card.capability == 120 else 13.0) if options.cuda is None else options.cuda,
        max_price=caps.price,
        hours=min(_HOURS, caps.lifetime / 3600),
        lifetime=caps.lifetime,
        reliability=reliability if options.reliability is None else options.reliability,
        inet_down=options.download,
        setup_gb=_SETUP_GB,
        places=tuple(country.upper() for country in options.country),
    )


def disk_of(settings: Settings, options: OfferOptions, card: Card) -> float:
    """GB of disk: the option, else NINFER_DISK, else 60 for an RTX 3090 and 80 for others."""
    if options.disk is not None:
        disk = options.disk
    elif settings.text("NINFER_DISK"):
        disk = settings.number("NINFER_DISK")
    else:
        disk = 60.0 if card.name == "RTX 3090" else 80.0
    if disk < 8:
        raise UsageError(f"a disk of {disk:g} GB: the vendor has no smaller ones than 8")
    return disk


def _spellings(card: Card) -> tuple[str, ...]:
    return (card.name, *card.other_names)
