"""What every command of the fleet starts with: settings, records, and who can be asked."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from ninfer.cli.arguments import Parser
from ninfer.cli.fleet.keyring_lookup import from_keyring
from ninfer.errors import HostBrokenError
from ninfer.fleet.box import Box
from ninfer.fleet.clock import Clock, SystemClock
from ninfer.fleet.config import Settings, load_settings
from ninfer.fleet.contract import Contract, alias_of
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.own import LOCAL, LocalBox, OwnMachine, own_address
from ninfer.fleet.power import find, present
from ninfer.fleet.provider import Address, Provider, Snapshot
from ninfer.fleet.sky import SKY, Sky, SkyBox
from ninfer.fleet.sky_command import SkyCommand
from ninfer.fleet.store import Store
from ninfer.fleet.vast import Vast
from ninfer.fleet.vast_http import VastHttp

VAST: Final = "vast"
# Logs in: a name for messages, the alias of the host key, the address.
Opener = Callable[[str, str, Address], Box]


def add_json(parser: Parser) -> None:
    """The switch for data in place of tables."""
    parser.add_argument("--json", action="store_true", help="print data in place of a table")


def add_name(parser: Parser) -> None:
    """The optional name of one machine."""
    text = "machine's name or number (default: $NINFER_INSTANCE, else the only one)"
    parser.add_argument("name", metavar="NAME", nargs="?", default="", help=text)


def add_on(parser: Parser) -> None:
    """The same as an option, where words follow that belong to something else."""
    text = "machine's name or number (default: $NINFER_INSTANCE, else the only one)"
    parser.add_argument("--on", metavar="NAME", default="", help=text)


def clock() -> Clock:
    """The time that commands go by."""
    return SystemClock()


def read_settings() -> Settings:
    """Settings of this process: its environment, the `.env` here, the user's keyring."""
    return load_settings(os.environ, Path.cwd(), Path.home(), from_keyring)


@contextmanager
def open_fleet(*, ssh: bool = False, own: str = "") -> Iterator[Fleet]:
    """Settings of the environment and `.env`, the records, and who can be asked.

    That is the vendor if its key is set, each machine of one's own in the records, and the one
    named `own`, which may be SkyPilot too. With `ssh` the package that logs in is imported now,
    before anything is rented.
    """
    settings = read_settings()

    def say(text: str) -> None:
        # A closed terminal must not stand between a failure and the end of its machine.
        with suppress(OSError, ValueError):
            print(settings.redact(text), file=sys.stderr, flush=True)

    time = clock()
    with ExitStack() as held:
        store = held.enter_context(closing(Store(settings.records, time)))
        names = {row.provider for row in store.contracts()} | ({own} if own else set())
        machines = sorted(name for name in names if name not in (VAST, SKY))
        by_ssh = ssh or any(name != LOCAL for name in machines)
        opener = _opener(settings, say) if by_ssh else None
        providers: dict[str, Provider] = {
            name: own_machine(name, settings, opener) for name in machines
        }
        if SKY in names:
            providers[SKY] = Sky(SkyCommand(settings.text("NINFER_SKY")))
        if settings.text("VAST_API_KEY"):
            http = VastHttp(
                settings.text("VAST_URL"), settings.secret("VAST_API_KEY"), time, settings.redact
            )
            providers[VAST] = held.enter_context(closing(Vast(http, time)))

        def connect(contract: Contract, shot: Snapshot) -> Box:
            if contract.provider == LOCAL:
                return LocalBox()
            if contract.provider == SKY:
                return SkyBox(contract.name, contract.label)
            assert opener is not None and shot.ssh is not None, "this command does not log in"
            return opener(contract.name, contract.host_alias, shot.ssh)

        yield Fleet(settings, store, providers, time, say, connect)


@contextmanager
def box_on(fleet: Fleet, name: str) -> Iterator[tuple[Contract, Box]]:
    """A machine of the records and a shell on it; for a fleet that was opened with `ssh`."""
    row = find(fleet, name)
    shot = present(fleet, row)
    if row.provider != LOCAL and shot.ssh is None:
        raise HostBrokenError(
            f"{row.name}: no address for ssh while it is {shot.status}; 'ninfer up {row.name}' "
            "starts it",
            category="",
        )
    with closing(fleet.connect(row, shot)) as box:
        yield row, box


def own_machine(name: str, settings: Settings, opener: Opener | None) -> OwnMachine:
    """The provider of a machine of one's own: `local`, or `ssh:` and its host."""
    if name == LOCAL:
        return OwnMachine(name, None, LocalBox)
    host = name.partition(":")[2]
    address = own_address(host)
    assert opener is not None
    return OwnMachine(name, address, lambda: opener(host, alias_of(host), address))


def _opener(settings: Settings, say: Callable[[str], None]) -> Opener:
    # Needs the package's extra `fleet`, which most commands do without.
    from ninfer.fleet.asyncssh_box import opener

    return opener(settings.path("NINFER_SSH_KEY"), settings.records, say)
