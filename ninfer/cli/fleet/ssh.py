"""`ninfer ssh`: the system's ssh to a machine, with its host key pinned."""

import os
from collections.abc import Callable, Sequence

from ninfer.cli.arguments import Parser, parse
from ninfer.cli.fleet.opening import add_on, open_fleet
from ninfer.errors import HostBrokenError, UsageError
from ninfer.fleet.contract import Contract
from ninfer.fleet.own import LOCAL
from ninfer.fleet.power import find, present
from ninfer.fleet.sky import SKY
from ninfer.fleet.ssh_keys import ssh_command


def build_parser() -> Parser:
    """The options of `ninfer ssh`."""
    parser = Parser("ssh", "Log in to a machine, or run a command on it.")
    add_on(parser)
    parser.add_argument("command", metavar="COMMAND", nargs="*", help="command (default: a shell)")
    return parser


def main(argv: Sequence[str]) -> int:
    """Become ssh."""
    words = list(argv)
    own = (
        words[:2]
        if words[:1] == ["--on"]
        else words[:1]
        if words[:1] in (["-h"], ["--help"])
        else []
    )
    namespace = parse(build_parser(), own)
    become_ssh(namespace.on, lambda row: words[len(own) :])
    return 0


def become_ssh(name: str, command: Callable[[Contract], Sequence[str]]) -> None:
    """Replace this process by ssh to the machine's present address."""
    with open_fleet() as fleet:
        row = find(fleet, name)
        if row.provider == LOCAL:
            raise UsageError(f"{row.name}: it is this machine; type the command itself")
        shot = present(fleet, row)
        if shot.ssh is None:
            raise HostBrokenError(
                f"{row.name}: no address for ssh while it is {shot.status}; 'ninfer up {row.name}' "
                "starts it",
                category="",
            )
        key, records = fleet.settings.path("NINFER_SSH_KEY"), fleet.settings.records
        # SkyPilot writes its machines into the user's own configuration of ssh.
        by_name = row.provider == SKY
        line = ["ssh", row.label] if by_name else ssh_command(key, records, row, shot.ssh)
        line = [*line, *command(row)]
    try:
        os.execvp(line[0], line)
    except FileNotFoundError:
        raise UsageError("ssh: not on PATH; install the OpenSSH client") from None
