"""`ninfer status`: every machine that bills or may, what it costs, and when it ends."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.cli.fleet.opening import add_json, open_fleet
from ninfer.cli.output import print_table
from ninfer.errors import ProviderError
from ninfer.fleet.options import CapOptions, caps_of
from ninfer.fleet.report import Line, Report, report
from ninfer.fleet.served import served_at

_COLUMNS = ("name", "machine", "card", "state", "$/h", "$/h stopped", "spent", "left", "ends in")
_MORE = ("disk GB", "ssh")


def build_parser() -> Parser:
    """The options of `ninfer status`."""
    parser = Parser(
        "status",
        "Show all that bills, stopped disks included, and the model that clients reach. Asks the "
        "vendor for one list.",
    )
    add_options(parser, CapOptions)
    add_json(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """Print the machines. Raises ProviderError at the end when a provider could not be asked."""
    namespace = parse(build_parser(), argv)
    with open_fleet() as fleet:
        if not fleet.providers:
            fleet.provider("vast")  # raises: what cannot be asked is not "nothing bills"
        found = report(fleet, caps_of(fleet.settings, collect(namespace, CapOptions)))
        problems = [fleet.settings.redact(problem) for problem in found.problems]
        url = fleet.settings.text("NINFER_BASE_URL") if found.lines else ""
        served = served_at(url, fleet.settings.text("NINFER_API_KEY")) if url else None
    if namespace.json:
        print(json.dumps({**found.as_json(), "served": served and asdict(served)}))
    else:
        _show(found)
        if served is not None:
            print(served)
    if problems:
        raise ProviderError(f"states are not known: {'; '.join(problems)}")
    return 0


def _show(found: Report) -> None:
    lines = (*found.lines, *found.foreign, *found.others)
    if lines:
        print_table((*_COLUMNS, *_MORE), [_row(line) for line in lines])
    elif not found.problems:
        print("no machines; nothing bills")
    for line in lines:
        if line.note:
            print(f"{line.name}: {line.note}", file=sys.stderr)
    if found.foreign:
        print(
            "other records' machines bill too; 'ninfer reap --foreign' ends them", file=sys.stderr
        )
    if found.others:
        print("machines that are not ninfer's are left out of its sums and caps", file=sys.stderr)
    print(
        f"this month: ${found.month_spent:.2f} spent, ${found.month_left:.2f} free for new machines"
    )


def _row(line: Line) -> tuple[str, ...]:
    return (
        line.name,
        line.machine_id or "?",
        line.gpu,
        line.state if line.stage in ("ready", "stopped") else f"{line.state} ({line.stage})",
        _dollars(line.rate, 4),
        _dollars(line.stopped_rate, 4),
        _dollars(line.spent, 2),
        _dollars(line.left, 2),
        "never" if line.minutes is None else f"{line.minutes / 60:.1f} h",
        line.disk,
        line.ssh,
    )


def _dollars(value: float | None, digits: int) -> str:
    return "unknown" if value is None else f"{value:.{digits}f}"
