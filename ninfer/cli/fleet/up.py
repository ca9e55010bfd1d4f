"""`ninfer up`: start a stopped machine; one whose GPU is taken is stopped again."""

from collections.abc import Sequence

from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.cli.fleet.create import LOCAL_URL
from ninfer.cli.fleet.opening import add_name, open_fleet
from ninfer.fleet.options import CapOptions, caps_of
from ninfer.fleet.power import find, life_left, up
from ninfer.fleet.provisioning import records, resume


def build_parser() -> Parser:
    """The options of `ninfer up`."""
    parser = Parser("up", "Start a stopped machine and give it a new lifetime.")
    add_name(parser)
    add_options(parser, CapOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Start, and print where it is."""
    namespace = parse(build_parser(), argv)
    with open_fleet(ssh=True) as fleet:
        row = find(fleet, namespace.name)
        caps = caps_of(fleet.settings, collect(namespace, CapOptions))
        life = life_left(fleet, row, caps)
        row, shot = up(fleet, row, life)
        fleet.settings.write_base_url(LOCAL_URL)
        serves = bool(records(fleet, row)) and resume(
            fleet, row, fleet.settings.secret("NINFER_API_KEY")
        )
    where = f"{shot.ssh.host}:{shot.ssh.port}" if shot.ssh else "no address"
    verb = "serves" if serves else "runs"
    print(
        f"{row.name}: {verb} at {where}, costs ${row.rate:.4f}/h; ends itself in "
        f"{life / 3600:.1f} h; 'ninfer down {row.name}' keeps the disk, "
        f"'ninfer destroy {row.name}' ends all"
    )
    return 0
