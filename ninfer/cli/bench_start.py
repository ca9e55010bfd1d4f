"""`ninfer bench start`: process start to first token, imports and the rate of loading."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from ninfer.bench import Report, has_card, this_machine
from ninfer.bench.start import measure_start
from ninfer.cli.arguments import Parser, add_artifact, add_options, collect, parse
from ninfer.cli.output import write_text
from ninfer.engine.options import EngineOptions, check_engine
from ninfer.errors import UsageError


def build_parser() -> Parser:
    """The options of `ninfer bench start`."""
    parser = Parser(
        "bench start",
        "Start processes that load an artifact and draw one token. Shows what imports take, the "
        "time to the first token and the rate of loading, beside a bare process and a plain read "
        "of the same file. One start is not counted, so files come from the page cache.",
    )
    add_artifact(parser, "ARTIFACT")
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="counted starts (default: 3)"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="also write the report here (default: not set)"
    )
    add_options(parser.add_argument_group("engine"), EngineOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Measure and print the table."""
    namespace = parse(build_parser(), argv)
    if namespace.repeats < 1:
        raise UsageError(f"--repeats {namespace.repeats}: must be 1 or more")
    options = collect(namespace, EngineOptions, artifact=namespace.artifact)
    check_engine(options)
    given = {}
    for spec in fields(options):
        value = getattr(options, spec.name)
        if "help" in spec.metadata and value != spec.default:
            given[spec.name] = str(value) if isinstance(value, Path) else value
    rows = measure_start(options, given, namespace.repeats)
    on_card = has_card() and options.device != "cpu"
    report = Report.now("start", this_machine("cuda:0" if on_card else "cpu"), rows)
    print("\n".join(report.lines()))
    if namespace.record is not None:
        write_text("--record", namespace.record, report.to_json())
    return 0
