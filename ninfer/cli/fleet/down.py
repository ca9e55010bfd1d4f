"""`ninfer down`: stop a machine; its disk stays and bills."""

from collections.abc import Sequence

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_name, open_fleet
from ninfer.fleet.power import down, find


def build_parser() -> Parser:
    """The options of `ninfer down`."""
    parser = Parser("down", "Stop a machine. Its disk is kept and goes on billing.")
    add_name(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """Stop, and print what goes on billing."""
    namespace = parse(build_parser(), argv)
    with open_fleet() as fleet:
        row, shot = down(fleet, find(fleet, namespace.name))
    print(
        f"{row.name}: {shot.status}; {row.disk:.0f} GB of disk are kept and still bill "
        f"${row.rate:.4f}/h; 'ninfer destroy {row.name}' costs nothing more"
    )
    return 0
