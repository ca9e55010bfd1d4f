"""A log on a machine, followed: what `ninfer log` and `ninfer log-build` have in common."""

from collections.abc import Callable, Sequence

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_on
from ninfer.cli.fleet.ssh import become_ssh
from ninfer.errors import UsageError
from ninfer.fleet.contract import Contract


def log_parser(name: str, text: str) -> Parser:
    """The options of a command that follows a log."""
    parser = Parser(name, text)
    add_on(parser)
    parser.add_argument("--lines", type=int, default=40, help="earlier lines to show (default: 40)")
    return parser


def follow(parser: Parser, argv: Sequence[str], path: Callable[[Contract], str]) -> None:
    """Become ssh with `tail` on the machine; paths are below its home folder."""
    namespace = parse(parser, argv)
    if namespace.lines < 0:
        raise UsageError(f"--lines {namespace.lines}: must not be negative")
    lines = str(namespace.lines)
    become_ssh(namespace.on, lambda row: ["tail", "-n", lines, "-F", path(row)])
