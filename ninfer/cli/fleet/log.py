"""`ninfer log`: the server's log on a machine, followed."""

from collections.abc import Sequence
from typing import Final

from ninfer.cli.arguments import Parser
from ninfer.cli.fleet.follow import follow, log_parser
from ninfer.fleet.place import folder_of

SERVER_LOG: Final = "serve.log"


def build_parser() -> Parser:
    """The options of `ninfer log`."""
    return log_parser("log", "Follow the server's log on a machine.")


def main(argv: Sequence[str]) -> int:
    """Become ssh with `tail` on the machine."""
    follow(build_parser(), argv, lambda row: f"{folder_of(row)}/{SERVER_LOG}")
    return 0
