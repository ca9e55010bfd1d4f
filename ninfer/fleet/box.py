"""What may be done on a machine once it answers: commands, with input and output as text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ninfer.fleet.contract import Contract
from ninfer.fleet.provider import Snapshot


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended; `status` is -1 when it ran past its time."""

    status: int
    out: str
    err: str


class Box(Protocol):
    """A shell on one machine. Raises HostBrokenError when the link fails."""

    def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
        """Run a shell command; secrets go through `stdin`, never into the command."""

    def close(self) -> None:
        """End the link."""


def as_bytes(given: str | bytes) -> bytes:
    """Input of a command as it is sent."""
    return given.encode() if isinstance(given, str) else given


def as_text(output: object) -> str:
    """Output of a command; what is not UTF-8 is replaced."""
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else str(output or "")


# Opens a machine that runs. Raises HostBrokenError if nobody answers, VerificationError if the
# host key is not the one that is known.
Connect = Callable[[Contract, Snapshot], Box]
