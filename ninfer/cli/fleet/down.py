"""`ninfer down`: stop a machine; its disk stays and bills."""

from collections.abc import Sequence
from importlib.util import find_spec

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_name, open_fleet
from ninfer.fleet.power import down, find
from ninfer.fleet.provisioning import quiesce


def build_parser() -> Parser:
    """The options of `ninfer down`."""
    parser = Parser("down", "Stop a machine. Its disk is kept and goes on billing.")
    add_name(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """Stop, and print what goes on billing."""
    namespace = parse(build_parser(), argv)
    # Stopping must work without the package that logs in, only less gently.
    by_ssh = find_spec("asyncssh") is not None
    with open_fleet(ssh=by_ssh) as fleet:
        row = find(fleet, namespace.name)
        if by_ssh:
            quiesce(fleet, row)
        row, shot = down(fleet, row)
    print(
        f"{row.name}: {shot.status}; {row.disk:.0f} GB of disk are kept and still bill "
        f"${row.rate:.4f}/h; 'ninfer destroy {row.name}' costs nothing more"
    )
    return 0
