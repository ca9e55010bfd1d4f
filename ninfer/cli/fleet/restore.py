"""`ninfer restore`: the kit on a machine again, and its server restarted."""

from collections.abc import Sequence

from ninfer.cli.arguments import Parser
from ninfer.cli.fleet import provision


def build_parser() -> Parser:
    """The options of `ninfer restore`."""
    return provision.build_parser("restore")


def main(argv: Sequence[str]) -> int:
    """Install and restart; what of it is there and whole is only proved again."""
    return provision.main(argv, restore=True)
