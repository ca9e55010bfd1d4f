"""`ninfer cluster`: replicas on Ray Serve behind one address, and the plan of how many."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ninfer.cli.arguments import (
    Parser,
    Subparser,
    add_artifact,
    add_options,
    collect,
    parse,
)
from ninfer.cli.output import print_table, write_text
from ninfer.cli.serve import engine_of
from ninfer.cluster.options import (
    ClusterOptions,
    LoadOptions,
    MeasureOptions,
    check_cluster,
    check_load,
    check_measure,
)
from ninfer.log import configure
from ninfer.server.options import ServedEngineOptions, ServerOptions, check_server

if TYPE_CHECKING:
    from ninfer.cluster.planning import Row

# Of `ninfer serve`, but not of a cluster: Ray restarts replicas itself, and one file would be
# written by many.
_WITHOUT: Final = ("restart", "request_log_jsonl", "otlp_traces_endpoint")
_COLUMNS: Final = (
    "routing",
    "replicas",
    "met",
    "first p50 s",
    "first s",
    "token ms",
    "tokens/s",
    "hits %",
    "away %",
    "waiting",
    "holds to",
    "$/h",
    "$/M tokens",
)


def build_parser() -> Parser:
    """The subcommands of `ninfer cluster`."""
    parser = Parser(
        "cluster",
        "Several replicas of one model, each with a GPU or with cores of its own, behind one "
        "address. `serve` and `update` need ninfer[cluster]; `measure` and `plan` do not.",
    )
    commands = parser.add_subparsers(
        dest="command",
        required=True,
        metavar="serve|update|measure|plan",
        parser_class=Subparser,
    )
    serve = commands.add_parser(
        "serve", description="Serve an artifact by replicas, until a signal ends it."
    )
    add_artifact(serve, "ARTIFACT")
    add_options(serve.add_argument_group("cluster"), ClusterOptions)
    add_options(serve.add_argument_group("server"), ServerOptions, without=_WITHOUT)
    add_options(serve.add_argument_group("engine"), ServedEngineOptions)
    update = commands.add_parser(
        "update",
        description="Replace the artifact of a cluster that serves, one replica after another; "
        "what is under way ends where it began.",
    )
    add_artifact(update, "ARTIFACT")
    update.add_argument(
        "--address", default="local", metavar="ADDRESS", help="Ray cluster (default: local)"
    )
    measure = commands.add_parser(
        "measure", description="Time an idle server; the result is what `plan` needs."
    )
    measure.add_argument("url", metavar="URL", help="address of the server")
    add_options(measure, MeasureOptions)
    plan = commands.add_parser(
        "plan",
        description="Simulate a load: replicas that meet an objective, for each way to route, "
        "what they cost, and the load at which each breaks.",
    )
    add_options(plan, LoadOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Run one subcommand."""
    namespace = parse(build_parser(), argv)
    return {
        "serve": _serve,
        "update": _update,
        "measure": _measure,
        "plan": _plan,
    }[namespace.command](namespace)


def _serve(namespace: argparse.Namespace) -> int:
    for name in _WITHOUT:
        setattr(namespace, name, ServerOptions.__dataclass_fields__[name].default)
    options, server = collect(namespace, ClusterOptions), collect(namespace, ServerOptions)
    asked = collect(namespace, ServedEngineOptions, artifact=namespace.artifact)
    engine = engine_of(asked, server)
    check_cluster(options)
    check_server(server, engine)
    configure(server.log_level, as_json=server.log_json)

    from ninfer.cluster.run import run

    return run(options, server, engine)


def _update(namespace: argparse.Namespace) -> int:
    configure("info")

    from ninfer.cluster.run import update

    update(namespace.address, namespace.artifact)
    return 0


def _measure(namespace: argparse.Namespace) -> int:
    options = collect(namespace, MeasureOptions)
    check_measure(options)

    from ninfer.cluster.measure import measure

    text = asyncio.run(measure(namespace.url, options)).written()
    if options.output is None:
        sys.stdout.write(text)
    else:
        write_text("--output", options.output, text)
    return 0


def _plan(namespace: argparse.Namespace) -> int:
    options = collect(namespace, LoadOptions)
    path = check_load(options)

    from ninfer.cluster.costs import read_costs
    from ninfer.cluster.planning import Objective, Question, plan
    from ninfer.cluster.prices import Prices, read_offers
    from ninfer.cluster.trace import Shape, draw, read_trace

    shape = Shape(
        options.rate,
        options.turns,
        options.system_tokens,
        options.turn_tokens,
        options.answer_tokens,
        options.pause_s,
    )
    if options.trace is None:
        trace = draw(shape, options.requests, options.seed)
    else:
        trace = read_trace(options.trace)
    objective = Objective(options.first_token_s, options.token_s, options.percentile)
    prices = None if options.price is None else Prices((options.price,), endless=True)
    if options.offers is not None:
        prices = read_offers(options.offers)
    question = Question(trace, read_costs(path), objective, options.seed, prices)
    rows = plan(question, options.routings, options.replicas, options.most_replicas)
    if options.json:
        print(json.dumps([row.as_json() for row in rows]))
        return 0
    print_table(_COLUMNS, [_cells(row) for row in rows])
    return 0


def _cells(row: "Row") -> list[str]:
    holds, hour, million = row.holds_to, row.dollars_an_hour, row.dollars_a_million
    return [
        row.routing,
        str(row.replicas),
        "yes" if row.met else "no",
        f"{row.first_p50:.2f}",
        f"{row.first:.2f}",
        f"{1000 * row.token:.1f}",
        f"{row.tokens_per_second:,.0f}",
        f"{100 * row.hit_rate:.1f}",
        f"{100 * row.away:.1f}",
        str(row.most_waiting),
        "-" if holds is None else f"{holds:.2f}x",
        "-" if hour is None else f"{hour:,.2f}",
        "-" if million is None else f"{million:,.2f}",
    ]
