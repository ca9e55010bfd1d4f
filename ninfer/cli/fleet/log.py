"""`ninfer log`: the server's log on a machine, followed."""

from collections.abc import Sequence
from typing import Final

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_on
from ninfer.cli.fleet.ssh import become_ssh
from ninfer.errors import UsageError
from ninfer.fleet.place import folder_of

SERVER_LOG: Final = "serve.log"


def build_parser() -> Parser:
    """The options of `ninfer log`."""
    parser = Parser("log", "Follow the server's log on a machine.")
    add_on(parser)
    parser.add_argument("--lines", type=int, default=40, help="earlier lines to show (default: 40)")
    return parser


def main(argv: Sequence[str]) -> int:
    """Become ssh with `tail` on the machine."""
    namespace = parse(build_parser(), argv)
    if namespace.lines < 0:
        raise UsageError(f"--lines {namespace.lines}: must not be negative")
    lines = str(namespace.lines)
    # A command over ssh starts in the home folder.
    become_ssh(
        namespace.on, lambda row: ["tail", "-n", lines, "-F", f"{folder_of(row)}/{SERVER_LOG}"]
    )
    return 0
