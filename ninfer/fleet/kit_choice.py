"""Which kit a machine gets: one at an address, one of a private store, or one that it builds."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ninfer.errors import UsageError
from ninfer.fleet.config import Settings
from ninfer.fleet.private_store import Credentials, grant, read_credentials

_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class KitChoice:
    """A kit's address and digest; `builds` is a build on the machine instead.

    `token` must go with the request as its Authorization header, and never into an address, a log
    or a command line.
    """

    url: str = ""
    sha256: str = ""
    builds: bool = False
    token: str = field(default="", repr=False)


def choose_kit(
    settings: Settings,
    public_url: Callable[[], str],
    ask: Callable[[Credentials, str], tuple[str, str]] = grant,
    *,
    unchecked: bool = False,
) -> KitChoice:
    """What the variables say: a blank NINFER_KIT_SHA256 is a build, then comes the private store,
    then NINFER_KIT_URL, then `public_url`.

    Raises UsageError for a digest that is none, and, unless `unchecked`, for an address without
    one: code that runs as root is not taken on trust.
    """
    settings.refuse_old()
    digest = settings.text("NINFER_KIT_SHA256").strip()
    if "NINFER_KIT_SHA256" in settings.values and not digest:
        return KitChoice(builds=True)
    if digest and not _SHA256.fullmatch(digest):
        raise UsageError(f"NINFER_KIT_SHA256={digest}: must be 64 hexadecimal digits, or blank")
    digest = digest.lower()
    key = settings.text("NINFER_KIT_KEY")
    if key:
        if not settings.text("NINFER_B2_ENV"):
            raise UsageError(f"NINFER_KIT_KEY={key}: NINFER_B2_ENV must name the credentials' file")
        url, token = ask(read_credentials(settings.path("NINFER_B2_ENV")), key)
        choice = KitChoice(url, digest, token=token)
    else:
        choice = KitChoice(settings.text("NINFER_KIT_URL") or public_url(), digest)
    if not digest and not unchecked:
        raise UsageError(
            f"NINFER_KIT_SHA256 is not set for {choice.url}; set it to the kit's digest, or to "
            "nothing to build on the machine"
        )
    return choice
