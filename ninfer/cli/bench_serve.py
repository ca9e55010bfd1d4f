"""`ninfer bench serve`: load a server over HTTP, show waits and rates, and end in the audit."""

import os
import sys
from collections.abc import Sequence

from ninfer.audit import Audit, AuditOptions, ResponseFile, check_audit, judge_all
from ninfer.bench.serve import (
    Asker,
    Objective,
    Served,
    ServeLoadOptions,
    check_load,
    drive,
    figures_of,
    measured_texts,
    plan_load,
    record_of,
    responses_of,
)
from ninfer.bench.serve.figures import COLUMNS
from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.cli.audit import show_audit
from ninfer.cli.output import item_progress, print_table, write_text
from ninfer.client import ChatServer, root_of
from ninfer.errors import UsageError
from ninfer.log import configure


def build_parser() -> Parser:
    """The options of `ninfer bench serve`."""
    parser = Parser(
        "bench serve",
        "Load a server of the OpenAI protocol, this engine's or another, with requests that arrive "
        "as asked for. Shows time to first text, time a token, rates and what was served in time, "
        "and judges every response: a rate says nothing of what was written.",
    )
    add_options(parser.add_argument_group("load"), ServeLoadOptions)
    add_options(parser.add_argument_group("audit"), AuditOptions, without=("run_code",))
    return parser


def main(argv: Sequence[str]) -> int:
    """Send the load; the exit status is that of its audit."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, ServeLoadOptions)
    audit = collect(namespace, AuditOptions, run_code=True)
    check_load(options)
    check_audit(audit)
    configure("warning")
    assert options.server is not None and options.output is not None
    key = os.environ.get(options.key_env)
    root = root_of(options.server)
    with ChatServer(root, key, options.key_env) as server:
        model = options.model or _first_model(server)
        texts = measured_texts(server, model, options)
    arrivals = plan_load(options)
    with (
        ResponseFile(options.output) as file,
        ChatServer(root, key, options.key_env, connections=options.concurrency) as server,
        item_progress("asking", len(arrivals)) as advance,
    ):

        def keep(one: Served) -> None:
            file.add(one.response)
            advance()

        asker = Asker(server, model, texts, options)
        served = drive(arrivals, asker.ask, options.concurrency, on_served=keep)
    served.sort(key=lambda one: one.arrival.number)
    verdicts = judge_all(one.response for one in served)
    figures = figures_of(served, verdicts, _objective(options))
    # With --json stdout is one object, that of the audit.
    out = sys.stderr if audit.json else sys.stdout
    if not audit.json:
        print_table(COLUMNS, figures.rows())
    print("\n".join(figures.lines()), file=out)
    if options.record is not None:
        text = record_of(options, served, figures, Audit(verdicts, audit.by))
        write_text("--record", options.record, text)
    return show_audit(responses_of(served), audit)


def _objective(options: ServeLoadOptions) -> Objective:
    return Objective(
        None if options.ttft_ms is None else options.ttft_ms / 1e3,
        None if options.tpot_ms is None else options.tpot_ms / 1e3,
    )


def _first_model(server: ChatServer) -> str:
    cards = server.models()
    if not cards:
        raise UsageError(f"{server.root}: lists no model; name one with --model")
    return cards[0].id
