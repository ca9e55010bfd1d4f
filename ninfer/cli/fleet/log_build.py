"""`ninfer log-build`: the log of the build on a machine, followed."""

from collections.abc import Sequence

from ninfer.cli.arguments import Parser
from ninfer.cli.fleet.follow import follow, log_parser
from ninfer.fleet.building import BUILD_LOG


def build_parser() -> Parser:
    """The options of `ninfer log-build`."""
    return log_parser("log-build", "Follow the log of 'ninfer build' on a machine.")


def main(argv: Sequence[str]) -> int:
    """Become ssh with `tail` on the machine."""
    follow(build_parser(), argv, lambda row: BUILD_LOG)
    return 0
