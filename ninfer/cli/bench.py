"""`ninfer bench`: run one benchmark, print its table, keep or compare its JSON report."""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ninfer.cli.arguments import Parser, parse, read_text
from ninfer.errors import UsageError

if TYPE_CHECKING:
    from ninfer.bench import Report

NAMES = (
    "artifact",
    "convert",
    "engine-batch",
    "engine-cpu",
    "engine-prefix",
    "engine-round",
    "formats",
    "ops",
    "ops-variants",
    "tune",
)

# Words in place of a name that have options of their own, and their modules.
SUBCOMMANDS: Final = {"corpus": "bench_corpus", "compare": "bench_compare"}


def build_parser() -> Parser:
    """The options of `ninfer bench`."""
    parser = Parser(
        "bench",
        "Measure this machine. Each benchmark checks its results first, and shows every figure "
        "beside a roof or a baseline measured in the same run.",
    )
    others = " and ".join(SUBCOMMANDS)
    text = f"{', '.join(NAMES)}; {others} have options of their own, see 'ninfer bench corpus -h'"
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=text)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the report here (default: not set)"
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="report to compare with (default: not set)",
    )
    parser.add_argument(
        "--table",
        type=Path,
        metavar="FILE",
        help="tune: table of launch sizes to add the found ones to (default: not set)",
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; exit status 1 when a part of it failed its check and has no figure."""
    if argv and argv[0] in SUBCOMMANDS:
        module = importlib.import_module(f"ninfer.cli.{SUBCOMMANDS[argv[0]]}")
        status: int = module.main(argv[1:])
        return status
    namespace = parse(build_parser(), argv)

    from ninfer.bench import Report, check_comparable, compare, machine_of, run_benchmark

    # A measurement takes minutes; what would make it useless is found before.
    before = None
    if namespace.against is not None:
        before = Report.from_json(read_text("--against", namespace.against))
        check_comparable(before, namespace.name, machine_of(namespace.name))
    if namespace.json is not None and not os.access(namespace.json.parent, os.W_OK):
        raise UsageError(f"--json {namespace.json}: the folder cannot be written to")
    if namespace.table is not None and namespace.name != "tune":
        raise UsageError(f"--table: {namespace.name} finds no launch sizes; only tune does")
    report = _tune(namespace.table) if namespace.name == "tune" else run_benchmark(namespace.name)
    print("\n".join(report.lines()))
    if before is not None:
        print("\n".join(compare(before, report)))
    if namespace.json is not None:
        try:
            namespace.json.write_text(report.to_json(), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--json {namespace.json}: {error.strerror}") from error
        print(f"report: {namespace.json}", file=sys.stderr)
    return 1 if report.failures else 0


def _tune(table: Path | None) -> "Report":
    """Search launch sizes on the card; each is in the table as soon as it is found."""
    from ninfer.bench import Report, has_card, keeper, this_machine

    if not has_card():
        raise UsageError("tune: this machine has no CUDA device; run it on the card to be tuned")

    from ninfer.bench import tune_card

    machine = this_machine("cuda:0")
    keep = None if table is None else keeper(table, f"bench tune, {machine.device}")
    return Report.now("tune", machine, tune_card(keep=keep))
