"""Where kits are published, and reading one from an address."""

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from ninfer.cards import cards_named
from ninfer.errors import KitError, UsageError
from ninfer.kits.options import ARCHITECTURES
from ninfer.version import VERSION

STORE: Final = "NINFER_KIT_STORE"
_MOST: Final = 4 << 30
_TIMEOUT_S: Final = 60.0


def kit_name(architecture: int, python: str = "", machine: str = "") -> str:
    """The id of this version's kit for a stack; by default that of this process."""
    python = (python or sys.implementation.cache_tag or "unknown").replace("cpython-", "cp")
    return f"ninfer-{VERSION}-{python}-{machine or platform.machine()}-sm{architecture}"


def kit_url(card: str) -> str:
    """Address of the kit for a card's name or an architecture, below NINFER_KIT_STORE.

    Raises UsageError for an unknown card, and when no store is named.
    """
    store = os.environ.get(STORE, "").rstrip("/")
    architecture = architecture_of(card)
    if not store:
        raise UsageError(
            f"{STORE} is not set and this version has no public store; set it, or make the kit: "
            f"ninfer kit build --architecture {architecture}"
        )
    return f"{store}/{kit_name(architecture)}.kit.tar.gz"


def architecture_of(card: str) -> int:
    """Compute capability times ten of a card's name, `sm_90` or `90`."""
    number = card.lower().removeprefix("sm").removeprefix("_")
    if number.isdigit() and int(number) in ARCHITECTURES:
        return int(number)
    found = cards_named(card)
    if not found:
        raise UsageError(
            f"{card!r}: no known card, and none of {', '.join(map(str, ARCHITECTURES))}"
        )
    return found[0].capability


@contextmanager
def download(kit: str) -> Iterator[Path]:
    """A path to a kit: the file itself, or a temporary copy of what an http(s) address gives.

    Raises KitError for an address that does not answer with a whole file of at most 4 GiB.
    """
    if not kit.startswith(("http://", "https://")):
        yield Path(kit)
        return
    with tempfile.TemporaryDirectory(prefix="ninfer-kit-") as folder:
        path = Path(folder) / "kit.tar.gz"
        try:
            _fetch(kit, path)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise KitError(f"{kit}: {type(error).__name__}: {error}") from error
        yield path


def _fetch(address: str, path: Path) -> None:
    stream = httpx.stream("GET", address, follow_redirects=True, timeout=_TIMEOUT_S)
    with stream as answer, path.open("wb") as file:
        if answer.status_code != 200:
            raise KitError(f"{address}: HTTP {answer.status_code}")
        done = 0
        for piece in answer.iter_bytes():
            done += len(piece)
            if done > _MOST:
                raise KitError(f"{address}: more than {_MOST:,} bytes")
            file.write(piece)
