"""What a provider's text about a start says went wrong, and for how long to avoid the machine."""

import re
from dataclasses import dataclass
from typing import Final

from ninfer.fleet.provider import Phase, Snapshot

_DAY: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A kind of failure: `avoid` is for how many seconds the machine is not rented again."""

    category: str
    avoid: float


INJECTION: Final = Failure("gpu-injection", 30 * _DAY)
CONTAINER: Final = Failure("container", 7 * _DAY)
IMAGE: Final = Failure("image-pull", _DAY)
NO_SSH: Final = Failure("no-ssh", 7 * _DAY)
NEVER_RAN: Final = Failure("never-ran", 7 * _DAY)
SLOW: Final = Failure("slow", _DAY)
UNARMED: Final = Failure("no-dead-man", 7 * _DAY)
ACCOUNT: Final = Failure("account", 0.0)  # not the machine's fault

# First match wins; texts are compared in lower case.
_TEXTS: Final[tuple[tuple[str, Failure], ...]] = (
    (r"inject(ing)? cdi|cdi device", INJECTION),
    (r"insufficient credit|no credit|balance", ACCOUNT),
    (r"toomanyrequests|pull rate|manifest unknown|pull access denied|error pulling", IMAGE),
    (r"oci runtime|nvidia-container|permission denied", CONTAINER),
    (r"\b(error|failed|failure|exception|traceback)\b", CONTAINER),
)
_FINE: Final = re.compile(r"^\s*success\b")
# States that a machine does not leave for "running" by itself.
_DEAD: Final = (Phase.OFFLINE, Phase.UNKNOWN)


def failure_of_start(snapshot: Snapshot) -> Failure | None:
    """Why a machine that is starting will never run; None while it may.

    Only for starts: during a stop an old message of the start may still stand there.
    """
    if snapshot.phase is Phase.RUNNING:
        return None
    failure = failure_of_text(snapshot.message)
    if failure is not None:
        return failure
    if snapshot.status == "exited":
        return CONTAINER
    return NEVER_RAN if snapshot.phase in _DEAD else None


def failure_of_text(text: str) -> Failure | None:
    """The kind of failure that a text tells of; None for success and for progress."""
    lower = text.lower()
    if _FINE.match(lower):
        return None
    return next((failure for pattern, failure in _TEXTS if re.search(pattern, lower)), None)


def avoid_seconds(category: str) -> float:
    """For how long a machine with such a failure is avoided."""
    known = (INJECTION, CONTAINER, IMAGE, NO_SSH, NEVER_RAN, SLOW, UNARMED, ACCOUNT)
    return next((kind.avoid for kind in known if kind.category == category), _DAY)
