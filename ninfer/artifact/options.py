"""What a user may ask of `ninfer fetch` and `ninfer verify`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.errors import UsageError
from ninfer.options import check_choices, option

# "hub" is the download of the huggingface_hub library.
TRANSFERS: Final = ("http", "hub")


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Where an artifact comes from and where it goes."""

    directory: Path = option(Path("."), "folder to put the file in", metavar="DIR")
    revision: str | None = option(
        None,
        "branch or commit of the repository; what it holds must be a published file all the same",
        metavar="REV",
        unset="the registered commit, or the newest",
    )
    transfer: str = option(
        "http",
        "http goes on with an interrupted transfer; hub is huggingface_hub's own download, with "
        "Xet and many connections, and starts over",
        choices=TRANSFERS,
    )


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How much of a file is looked at."""

    sample_rows: int = option(
        512, "rows of each matrix that are decoded; 0 decodes every row", metavar="N"
    )
    seed: int = option(0, "which rows are chosen", metavar="N")


def check_fetch(options: FetchOptions) -> None:
    """Refuse values outside the choices. Raises UsageError."""
    check_choices(options)


def check_verify(options: VerifyOptions) -> None:
    """Refuse negative numbers. Raises UsageError."""
    for flag, value in (("--sample-rows", options.sample_rows), ("--seed", options.seed)):
        if value < 0:
            raise UsageError(f"{flag} {value}: must not be negative")
