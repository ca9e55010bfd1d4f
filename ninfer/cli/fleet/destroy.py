"""`ninfer destroy`: end a machine and its disk, and make sure of it."""

from collections.abc import Sequence

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_name, open_fleet
from ninfer.fleet.power import end, find


def build_parser() -> Parser:
    """The options of `ninfer destroy`."""
    parser = Parser(
        "destroy", "End a machine with its disk, and wait until the vendor no longer lists it."
    )
    add_name(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """End it; exit status 12 names a machine whose end is not certain."""
    namespace = parse(build_parser(), argv)
    with open_fleet() as fleet:
        row = find(fleet, namespace.name)
        fleet.say(f"{row.name}: its disk and what is on it go as well")
        row = end(fleet, row)
    print(f"{row.name}: ended, costs $0.00/h from now on; spent ${row.spent:.2f} in all")
    return 0
