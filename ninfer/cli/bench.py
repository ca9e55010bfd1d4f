"""`ninfer bench`: run one benchmark, print its table, keep or compare its JSON report."""

import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ninfer.cli.arguments import Parser, parse, read_text
from ninfer.errors import UsageError

if TYPE_CHECKING:
    from ninfer.bench import Report, Row

NAMES = (
    "artifact",
    "convert",
    "engine",
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
SUBCOMMANDS: Final = {
    "box": "bench_box",
    "corpus": "bench_corpus",
    "compare": "bench_compare",
    "serve": "bench_serve",
    "http": "bench_http",
    "start": "bench_start",
}


def build_parser() -> Parser:
    """The options of `ninfer bench`."""
    parser = Parser(
        "bench",
        "Measure this machine. Each benchmark checks its results first, and shows every figure "
        "beside a roof or a baseline measured in the same run.",
    )
    others = ", ".join(SUBCOMMANDS)
    text = (
        f"{', '.join(NAMES)}; {others} have options of their own, see 'ninfer bench corpus -h'; "
        "numbers with commas mean box"
    )
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
    parser.add_argument(
        "--quick", action="store_true", help="engine: fewer sizes, for minutes that cost"
    )
    parser.add_argument(
        "--model",
        action="append",
        metavar="NAME",
        help="engine: qwen3.6-27b or qwen3.6-35b-a3b; repeatable (default: both)",
    )
    parser.add_argument(
        "--scale", metavar="NAME", help="engine: full, tiny or micro (default: full)"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; exit status 1 when a part of it failed its check and has no figure."""
    if argv and argv[0][:1].isdigit():
        argv = ["box", *argv]
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
    given = {"--quick": namespace.quick, "--model": namespace.model, "--scale": namespace.scale}
    if namespace.name != "engine" and any(given.values()):
        flags = ", ".join(flag for flag, value in given.items() if value)
        raise UsageError(f"{flags}: only bench engine takes that, not {namespace.name}")
    if namespace.name == "tune":
        report = _tune(namespace.table)
    elif namespace.name == "engine":
        report = _engine(namespace)
    else:
        report = run_benchmark(namespace.name)
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


def _engine(namespace: Namespace) -> "Report":
    """The engine over random weights of the models asked for."""
    from ninfer.bench import engine

    def show(row: "Row") -> None:
        # A run that is cut off leaves what it has found.
        print(
            f"{row.key}: {row.value:.4g} ({row.share:.3f} of {row.reference_name})", file=sys.stderr
        )

    names = namespace.model or engine.MODELS
    quick, scale = namespace.quick, namespace.scale
    return engine.run_on_this_machine(names, quick=quick, scale=scale, seen=show)


def _tune(table: Path | None) -> "Report":
    """Search launch sizes on the card; each is in the table as soon as it is found."""
    from ninfer.bench import Report, has_card, keeper, this_machine

    if not has_card():
        raise UsageError("tune: this machine has no CUDA device; run it on the card to be tuned")

    from ninfer.bench import tune_card

    machine = this_machine("cuda:0")
    keep = None if table is None else keeper(table, f"bench tune, {machine.device}")
    return Report.now("tune", machine, tune_card(keep=keep))
