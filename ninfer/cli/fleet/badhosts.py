"""`ninfer badhosts`: machines that failed and are avoided, and why."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_json, open_fleet
from ninfer.cli.output import print_table
from ninfer.errors import UsageError
from ninfer.fleet.bad_hosts import bad_hosts, forget


def build_parser() -> Parser:
    """The options of `ninfer badhosts`."""
    parser = Parser("badhosts", "List machines that are avoided; 'forget ID' gives one a chance.")
    parser.add_argument("action", metavar="forget ID", nargs="*", help="take one off the list")
    add_json(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """Print the list, or take a machine off it."""
    namespace = parse(build_parser(), argv)
    words = namespace.action
    if words and (len(words) != 2 or words[0] != "forget"):
        raise UsageError(f"badhosts {' '.join(words)}: either nothing, or forget ID")
    with open_fleet() as fleet:
        if words:
            forget(fleet.store, words[1])
            print(f"machine {words[1]} may be rented again")
            return 0
        found = bad_hosts(fleet.store)
    if namespace.json:
        print(json.dumps([asdict(bad) for bad in found]))
        return 0
    if not found:
        print("no machine is avoided")
        return 0
    columns = ("machine", "why", "times", "until", "said")
    print_table(
        columns,
        [
            (bad.machine, bad.category, str(bad.times), _day(bad.expires), bad.reason[:90])
            for bad in found
        ],
    )
    return 0


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))
