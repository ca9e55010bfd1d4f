"""`ninfer bench box`: a server's speed by the number of streams, its cost, and the audit."""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ninfer.audit import Audit
from ninfer.audit.record import StoredResponse
from ninfer.cli.arguments import Parser, add_options, collect, parse
from ninfer.cli.audit import print_audit
from ninfer.cli.fleet.opening import add_on, box_on, open_fleet, read_settings
from ninfer.cli.output import print_table, write_text
from ninfer.client import root_of
from ninfer.errors import UsageError
from ninfer.fleet.bench_options import STREAMS, BenchOptions, check_bench, parse_streams
from ninfer.fleet.config import Settings
from ninfer.fleet.own import LOCAL
from ninfer.fleet.speed import (
    Question,
    Runner,
    SpeedRow,
    bench,
    find_model,
    rows_as_json,
    run_here,
    run_on,
)
from ninfer.fleet.variables import BY_NAME
from ninfer.version import VERSION

_COLUMNS: Final = (
    *("sampling", "streams", "usable", "tok/s per stream", "tok/s in all", "scaling"),
    *("tokens per round", "accepted", "seconds", "$ per M usable tokens"),
)


def build_parser() -> Parser:
    """The options of `ninfer bench box`; `ninfer bench C,C,...` is the same."""
    parser = Parser(
        "bench box",
        "Ask a machine's server for several streams at once, from the machine itself, with the "
        "server's own sampling and greedily. Rates of streams are the server's figures; the rate "
        "of all counts the burst from its first request to its last answer. Ends in the audit.",
    )
    text = f"numbers of streams, one burst each (default: {STREAMS})"
    parser.add_argument("streams", nargs="?", default=STREAMS, metavar="C,C,...", help=text)
    add_on(parser)
    add_options(parser, BenchOptions)
    return parser


def main(argv: Sequence[str]) -> int:
    """Measure; exit status 1 when an answer did not come, or too few are usable."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, BenchOptions)
    check_bench(options)
    streams = parse_streams(namespace.streams)
    if options.server is not None and namespace.on:
        raise UsageError("--on and --server: give one of them")
    with _target(namespace, options) as (run, root, name, price, settings):
        tokens = options.tokens or int(settings.number("NINFER_BENCH_TOKENS"))
        if tokens < 2:
            raise UsageError(f"NINFER_BENCH_TOKENS={tokens}: must be at least 2")
        name_of_key = options.key_env
        known = name_of_key in BY_NAME
        key = settings.text(name_of_key) if known else os.environ.get(name_of_key, "")
        model = options.model or find_model(run, root, key, options.seconds)
        question = Question(root, key, model, tokens, options.seconds, options.extensions)
        rows, verdicts = bench(run, question, streams, price, _told)
        path = options.output or _new_file(settings, name)
    audit = Audit(verdicts, "category")
    report = {
        "kind": "ninfer bench box",
        "ninfer": VERSION,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": name,
        "model": model,
        "tokens_of_a_stream": tokens,
        "dollars_per_hour": price,
        "rows": rows_as_json(rows),
        "audit": audit.to_json(),
    }
    _save(path, report, [verdict.response for verdict in verdicts])
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print_table(_COLUMNS, [_cells(row) for row in rows])
        print_audit(audit)
    low = options.fail_under is not None and 100 * audit.usable_share < options.fail_under
    return 1 if low or any(row.answered < row.streams for row in rows) else 0


@contextmanager
def _target(
    namespace: Namespace, options: BenchOptions
) -> Iterator[tuple[Runner, str, str, float | None, Settings]]:
    """Who runs the bursts, the server's address there, a name, $/h, and the settings."""
    if options.server is not None:
        settings = read_settings()
        root = root_of(options.server)
        yield run_here, root, root, options.price, settings
        return
    root = f"http://127.0.0.1:{options.port}"
    with open_fleet(ssh=True) as fleet, box_on(fleet, namespace.on) as (row, box):
        price = options.price if options.price is not None else row.price or None
        run = run_here if row.provider == LOCAL else run_on(box, options.seconds)
        yield run, root, row.name, price, fleet.settings


def _told(row: SpeedRow) -> None:
    # A run that is cut off leaves what it has found.
    print(f"{row.sampling}, {row.streams}: {row.aggregate:.1f} tok/s in all", file=sys.stderr)


def _cells(row: SpeedRow) -> tuple[str, ...]:
    return (
        row.sampling,
        str(row.streams),
        f"{row.usable}/{row.streams}",
        _number(row.per_stream, ".1f"),
        f"{row.aggregate:.1f}",
        _number(row.scaling, ".2f"),
        _number(row.tokens_per_round, ".2f"),
        _number(row.acceptance, ".0%"),
        f"{row.wall:.2f}",
        _number(row.cost, ".3f"),
    )


def _number(value: float | None, form: str) -> str:
    return "not told" if value is None else format(value, form)


def _new_file(settings: Settings, name: str) -> Path:
    folder = settings.records / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    safe = "".join(c if c.isalnum() or c in "-." else "_" for c in name)
    return folder / f"{safe}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"


def _save(path: Path, report: dict[str, Any], responses: Sequence[StoredResponse]) -> None:
    write_text("--output", path, json.dumps(report, indent=2) + "\n")
    lines = "".join(response.to_json() + "\n" for response in responses)
    write_text("--output", path.with_suffix(".jsonl"), lines)
    print(f"report: {path}; responses: {path.with_suffix('.jsonl')}", file=sys.stderr)
