"""Options of `ninfer doctor` and `ninfer selftest`; no torch."""

from dataclasses import dataclass
from pathlib import Path

from ninfer.errors import UsageError
from ninfer.options import option


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What to look at beside the machine."""

    host: str = option("127.0.0.1", "address that a server would listen on")
    port: int = option(8080, "port that a server would listen on")
    folder: Path = option(Path("."), "folder whose disk is looked at")
    json: bool = option(False, "print one JSON array")
    bundle: Path | None = option(
        None, "also write a file for bug reports, without names, keys and places", unset="none"
    )


def check_doctor(options: DoctorOptions) -> None:
    """Raise UsageError for a value out of range."""
    if not 0 < options.port < 65536:
        raise UsageError(f"--port {options.port}: must be in 1..65535")
    if not options.folder.is_dir():
        raise UsageError(f"--folder {options.folder}: no such folder")


@dataclass(frozen=True, slots=True)
class SelftestOptions:
    """Which ops to compare with their references, and where the page goes."""

    op: tuple[str, ...] = option(
        (), "op to look at; repeatable", metavar="NAME", unset="all of them"
    )
    seed: int = option(0, "seed of the inputs", metavar="N")
    json: bool = option(False, "print one JSON object")
    page: Path | None = option(None, "also write a page to send", metavar="FILE", unset="none")
