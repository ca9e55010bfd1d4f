"""Every variable that the fleet reads from the environment or a `.env` file, as a table."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: what holds while it is not set, and what it means.

    `secret` values are shown nowhere. `successor` names the variable that took over; setting the
    old one is refused where it would have mattered.
    """

    name: str
    default: str
    meaning: str
    secret: bool = False
    successor: str = ""


VARIABLES: Final[tuple[Variable, ...]] = (
    Variable("VAST_API_KEY", "", "the vendor's key; needed for everything but own machines", True),
    Variable("NINFER_API_KEY", "", "the key that a served API demands", True),
    Variable("NINFER_BASE_URL", "", "written into `.env` on create and up, for clients"),
    Variable("NINFER_PROJ", "", "folder of `.env` and of the fleet's records"),
    Variable("NINFER_SSH_KEY", "~/.ssh/id_ed25519", "private key for the machines"),
    Variable("NINFER_DISK", "", "disk in GB; 60 for an RTX 3090, 80 for others"),
    Variable("NINFER_INSTANCE", "", "name or number of the machine that commands act on"),
    Variable("NINFER_MODEL", "", "artifact that is served; the default goes by card"),
    Variable("NINFER_PROVIDER", "ninfer", "key under which client configurations list the server"),
    Variable("NINFER_KIT_URL", "", "address of the kit"),
    Variable("NINFER_KIT_SHA256", "", "SHA-256 of the kit; blank: build on the machine"),
    Variable("NINFER_KIT_SHA1", "", "SHA-1 does not protect code", successor="NINFER_KIT_SHA256"),
    Variable("NINFER_KIT_KEY", "", "object name of the kit in a private store"),
    Variable("NINFER_B2_ENV", "", "file with the private store's credentials"),
    Variable("NINFER_SRC_BRANCH", "main", "git ref that a build on the machine starts from"),
    Variable("NINFER_SRC_URL", "", "git address of that ref; empty: the checkout that runs"),
    Variable("NINFER_BENCH_TOKENS", "600", "tokens of each stream in a benchmark"),
    Variable("NINFER_MAX_PRICE", "1.00", "most dollars an hour for one machine"),
    Variable("NINFER_BUDGET", "10", "most dollars for one machine in its life"),
    Variable("NINFER_MONTH_BUDGET", "50", "most dollars in a calendar month (UTC)"),
    Variable("NINFER_LIFETIME_HOURS", "8", "hours after which a machine destroys itself"),
    Variable("NINFER_IDLE_MINUTES", "20", "minutes without a request after which it does so"),
    Variable("NINFER_SKY", "sky", "program of SkyPilot for --provider sky, with its first words"),
    Variable("VAST_URL", "https://console.vast.ai", "where the vendor's API is"),
)
BY_NAME: Final = {variable.name: variable for variable in VARIABLES}
