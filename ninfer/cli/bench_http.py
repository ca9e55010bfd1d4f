"""`ninfer bench http`: tokens a second through HTTP over those in-process, ending in the audit."""

import sys
from collections.abc import Sequence

from ninfer.audit import AuditOptions, check_audit
from ninfer.bench import Report, has_card, this_machine
from ninfer.bench.serve.options import TransportOptions, check_transport
from ninfer.bench.serve.transport import measure_transport
from ninfer.cli.arguments import Parser, add_artifact, add_options, collect, parse
from ninfer.cli.audit import show_audit
from ninfer.cli.output import write_text
from ninfer.engine.options import check_engine
from ninfer.log import configure
from ninfer.server.options import ServedEngineOptions

# What the numbers of streams say, or would make the two sides differ.
_IMPLIED = ("max_concurrency", "max_pending_requests", "prefix_cache_mib")


def build_parser() -> Parser:
    """The options of `ninfer bench http`."""
    parser = Parser(
        "bench http",
        "Write the same answers by an engine in-process and by 'ninfer serve' through HTTP, check "
        "that the ids are equal, and show the rate of the one beside that of the other.",
    )
    add_artifact(parser, "ARTIFACT")
    add_options(parser.add_argument_group("streams"), TransportOptions)
    add_options(parser.add_argument_group("audit"), AuditOptions, without=("run_code",))
    add_options(parser.add_argument_group("engine"), ServedEngineOptions, without=_IMPLIED)
    return parser


def main(argv: Sequence[str]) -> int:
    """Measure; exit status 1 when ids differ, else that of the audit."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, TransportOptions)
    audit = collect(namespace, AuditOptions, run_code=True)
    engine = collect(
        namespace,
        ServedEngineOptions,
        artifact=namespace.artifact,
        max_concurrency=max(options.counts),
        max_pending_requests=16,
        prefix_cache_mib=0,
    )
    check_transport(options)
    check_audit(audit)
    check_engine(engine)
    configure("warning")
    found, responses = measure_transport(options, engine)
    on_card = has_card() and engine.device != "cpu"
    report = Report.now("http", this_machine("cuda:0" if on_card else "cpu"), found)
    print("\n".join(report.lines()), file=sys.stderr if audit.json else sys.stdout)
    if options.record is not None:
        write_text("--record", options.record, report.to_json())
    status = show_audit(responses, audit)
    return 1 if report.failures else status
