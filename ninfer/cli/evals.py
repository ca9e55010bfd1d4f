"""`ninfer evals`: score an artifact on a suite, compare two runs, measure what drafts are worth."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ninfer.artifact.packaged import NAMES, locate
from ninfer.cli.arguments import (
    Parser,
    Subparser,
    add_artifact,
    add_options,
    collect,
    parse,
    path_of,
    refuse_given,
)
from ninfer.cli.evals_served import run_served
from ninfer.cli.output import print_table, write_text
from ninfer.client import is_address
from ninfer.engine.options import EngineOptions, check_engine
from ninfer.errors import UsageError
from ninfer.evals import (
    DELTA_COLUMNS,
    SCORE_COLUMNS,
    EvalOptions,
    Header,
    Item,
    Outcome,
    ResultFile,
    Suite,
    check_evals,
    compare,
    load_suite,
    read_results,
    score,
    suite_names,
)
from ninfer.evals.acceptance import table_of
from ninfer.evals.evalscope_suites import EVALSCOPE_SUITES
from ninfer.evals.options import AcceptanceOptions, ServedEvalOptions
from ninfer.log import configure
from ninfer.version import VERSION

# Engine options that follow from the items, or from --concurrency.
_IMPLIED: Final = ("max_context", "max_concurrency", "max_pending_requests", "vision")
# Those that can change an answer; the others decide how fast and where it is computed.
_SETTINGS: Final = ("device", "kv_dtype", "weights", "activations", "chat_template")


def build_parser() -> Parser:
    """The subcommands of `ninfer evals`."""
    parser = Parser("evals", "Ask a model the items of a suite, and grade what it answers.")
    commands = parser.add_subparsers(
        dest="command",
        required=True,
        metavar="run|acceptance|compare|list",
        parser_class=Subparser,
    )
    run = commands.add_parser(
        "run",
        description="Score an artifact on a suite of this package, by greedy decoding; or let "
        "EvalScope ask a server, and audit what it answered.",
    )
    _add_run(run)
    acceptance = commands.add_parser(
        "acceptance",
        description="Count how many drafts are right, by task and number in the round. Every "
        "round tries all --draft-tokens drafts.",
    )
    _add_acceptance(acceptance)
    pair = commands.add_parser(
        "compare", description="Compare two result files over the items that both have."
    )
    for name in ("first", "second"):
        pair.add_argument(
            name, type=_reader(name.upper()), metavar=name.upper(), help=f"{name} result file"
        )
    pair.add_argument("--json", action="store_true", help="print one JSON array (default: off)")
    commands.add_parser("list", description="List the suites, their tasks and numbers of items.")
    return parser


def _reader(name: str) -> Any:
    return lambda text: path_of(name, text)


def _add_run(parser: Parser) -> None:
    parser.add_argument(
        "partner",
        metavar="URL|ARTIFACT",
        help="address of a server for suites of EvalScope, else .ninfer file or "
        + " or ".join(NAMES),
    )
    add_options(parser.add_argument_group("evaluation"), EvalOptions)
    add_options(parser.add_argument_group("suites of EvalScope"), ServedEvalOptions)
    add_options(
        parser.add_argument_group("engine, for an ARTIFACT"), EngineOptions, without=_IMPLIED
    )


def _add_acceptance(parser: Parser) -> None:
    add_artifact(parser, "ARTIFACT")
    group = parser.add_argument_group("evaluation")
    add_options(group, EvalOptions, without=("output", "json"))
    add_options(group, AcceptanceOptions)
    without = (*_IMPLIED, "adaptive_drafts")
    add_options(parser.add_argument_group("engine"), EngineOptions, without=without)


def main(argv: Sequence[str]) -> int:
    """Run one subcommand."""
    namespace = parse(build_parser(), argv)
    if namespace.command == "list":
        _list()
    elif namespace.command == "compare":
        _compare(namespace.first, namespace.second, as_json=namespace.json)
    elif namespace.command == "acceptance":
        _acceptance(namespace)
    elif namespace.suite in EVALSCOPE_SUITES:
        return run_served(namespace)
    else:
        _run(namespace)
    return 0


def _list() -> None:
    rows = []
    for name in suite_names():
        suite = load_suite(name)
        for task in suite.tasks:
            items = suite.of_tasks([task]).items
            media = "media" if any(item.has_media for item in items) else "text"
            rows.append((name, task, str(len(items)), media))
    for name, served in EVALSCOPE_SUITES.items():
        count = "of --data" if served.items is None else str(served.items)
        rows.append((name, "asked by EvalScope", count, "text"))
    print_table(("suite", "task", "items", "asks with"), rows)


def _compare(first: Path, second: Path, *, as_json: bool) -> None:
    (old, before), (new, after) = read_results(first), read_results(second)
    if old.suite != new.suite:
        raise UsageError(f"results of different suites: {old.suite} and {new.suite}")
    rows = compare(before, after)
    if as_json:
        print(json.dumps([{**asdict(row), "delta": row.delta} for row in rows], indent=2))
        return
    for name, header in (("first", old), ("second", new)):
        print(f"{name}: {header.artifact} ({header.model[:12]}), {_shown(header)}")
    print_table(DELTA_COLUMNS, [row.cells() for row in rows])


def _shown(header: Header) -> str:
    return ", ".join(f"{name} {value}" for name, value in header.settings.items() if value)


def _run(namespace: argparse.Namespace) -> None:
    options = collect(namespace, EvalOptions)
    suite = _suite(options)
    refuse_given(
        collect(namespace, ServedEvalOptions), f"is for suites of EvalScope, not for {suite.name}"
    )
    if is_address(namespace.partner):
        raise UsageError(f"{namespace.partner}: suite {suite.name} is asked of an artifact's file")
    namespace.artifact = locate(path_of("URL|ARTIFACT", namespace.partner))
    engine = _engine_options(namespace, options, suite)
    header = _header(suite, engine)
    if options.output is None:
        found: dict[str, Outcome] = {}
        _answer(suite.items, options, engine, lambda outcome: found.update({outcome.id: outcome}))
    else:
        with ResultFile(options.output, header) as results:
            rest = tuple(item for item in suite.items if not results.holds(item))
            try:
                _answer(rest, options, engine, results.add)
            except KeyboardInterrupt:
                done = sum(map(results.holds, suite.items))
                print(
                    f"{done} of {len(suite.items)} outcomes are in {options.output}; "
                    "the same command goes on from there",
                    file=sys.stderr,
                )
                raise
        found = results.outcomes
    report = score(header, [found[item.id] for item in suite.items])
    if options.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        print_table(SCORE_COLUMNS, report.rows())


def _acceptance(namespace: argparse.Namespace) -> None:
    options = collect(namespace, EvalOptions, output=None, json=False)
    stored = collect(namespace, AcceptanceOptions)
    suite = _suite(options)
    engine_options = _engine_options(namespace, options, suite, adaptive_drafts=False)
    if engine_options.spec is None:
        raise UsageError("--spec NAME is missing; there is nothing to count without drafts")
    header = _header(suite, engine_options)

    from ninfer.cli.eval_engine import load_engine, task_acceptance

    fitting = options.max_context is None
    engine = load_engine(engine_options, suite.items, fitting=fitting)
    counts = [
        task_acceptance(engine, task, suite.of_tasks([task]).items, options.concurrency)
        for task in suite.tasks
    ]
    print_table(*table_of(counts))
    if stored.output is not None:
        drafting = {
            name: getattr(engine_options, name)
            for name in ("spec", "draft_tokens", "lm_head_draft")
        }
        document = {**asdict(header), **drafting, "tasks": [task.to_json() for task in counts]}
        write_text("--output", stored.output, json.dumps(document, indent=2) + "\n")


def _header(suite: Suite, options: EngineOptions) -> Header:
    configure("warning")

    # Importing torch takes a second; options and suite are checked before.
    from ninfer.cli.eval_engine import artifact_digest

    given = {name: getattr(options, name) for name in _SETTINGS}
    settings = {name: value and str(value) for name, value in given.items()}
    return Header(suite.name, artifact_digest(options), options.artifact.name, settings, VERSION)


def _suite(options: EvalOptions) -> Suite:
    """The items that the options choose, at least one."""
    suite = load_suite(check_evals(options))
    if options.task:
        suite = suite.of_tasks(options.task)
    if options.text_only:
        suite = suite.without_media()
    if options.limit is not None:
        suite = suite.first(options.limit)
    if not suite.items:
        raise UsageError(f"--suite {options.suite}: no item is left to ask")
    return suite


def _engine_options(
    namespace: argparse.Namespace, options: EvalOptions, suite: Suite, **given: bool
) -> EngineOptions:
    chosen = collect(
        namespace,
        EngineOptions,
        artifact=namespace.artifact,
        # Without one it is chosen when the prompts are known.
        max_context=options.max_context or 1,
        max_concurrency=options.concurrency,
        max_pending_requests=options.concurrency,
        vision=any(item.has_media for item in suite.items),
        **given,
    )
    check_engine(chosen)
    return chosen


def _answer(
    items: Sequence[Item],
    options: EvalOptions,
    engine_options: EngineOptions,
    on_outcome: Callable[[Outcome], None],
) -> None:
    from ninfer.cli.eval_engine import answer_items, load_engine

    if not items:
        return
    engine = load_engine(engine_options, items, fitting=options.max_context is None)
    answer_items(
        engine,
        items,
        on_outcome,
        title="answering",
        concurrency=options.concurrency,
    )
