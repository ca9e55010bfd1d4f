"""What every command of the fleet starts with: settings, records, and who can be asked."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from ninfer.cli.arguments import Parser
from ninfer.fleet.box import Box, Connect
from ninfer.fleet.clock import Clock, SystemClock
from ninfer.fleet.config import Settings, load_settings
from ninfer.fleet.contract import Contract
from ninfer.fleet.fleet import Fleet
from ninfer.fleet.provider import Provider, Snapshot
from ninfer.fleet.store import Store
from ninfer.fleet.vast import Vast
from ninfer.fleet.vast_http import VastHttp


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


@contextmanager
def open_fleet(*, ssh: bool = False) -> Iterator[Fleet]:
    """Settings of the environment and `.env`, the records, and the vendor if its key is set.

    With `ssh` the package that logs in is imported now, before anything is rented.
    """
    settings = load_settings(os.environ, Path.cwd(), Path.home())

    def say(text: str) -> None:
        print(settings.redact(text), file=sys.stderr, flush=True)

    connect = _opener(settings, say) if ssh else _closed
    time = clock()
    with ExitStack() as held:
        store = held.enter_context(closing(Store(settings.records, time)))
        providers: dict[str, Provider] = {}
        if settings.text("VAST_API_KEY"):
            http = VastHttp(
                settings.text("VAST_URL"), settings.secret("VAST_API_KEY"), time, settings.redact
            )
            providers["vast"] = held.enter_context(closing(Vast(http, time)))
        yield Fleet(settings, store, providers, time, say, connect)


def _opener(settings: Settings, say: Callable[[str], None]) -> Connect:
    # Needs the package's extra `fleet`, which most commands do without.
    from ninfer.fleet.asyncssh_box import opener

    return opener(settings.path("NINFER_SSH_KEY"), settings.records, say)


def _closed(contract: Contract, shot: Snapshot) -> Box:
    raise AssertionError(f"a command that does not log in opens {contract.name}")
