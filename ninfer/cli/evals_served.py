"""`ninfer evals run URL`: EvalScope asks a server, and its answers end in the audit."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ninfer.audit import AuditOptions, read_responses
from ninfer.audit.record import StoredResponse
from ninfer.audit.statistics import wilson
from ninfer.cli.arguments import collect
from ninfer.cli.audit import show_audit
from ninfer.cli.output import print_table
from ninfer.client import ChatServer, is_address, root_of
from ninfer.errors import UsageError
from ninfer.evals import EvalOptions
from ninfer.evals.evalscope_process import python_with_evalscope, run_evalscope
from ninfer.evals.evalscope_suites import EVALSCOPE_SUITES, EvalScopeRun
from ninfer.evals.options import ServedEvalOptions, check_served
from ninfer.log import configure

COLUMNS = ("suite", "items", "right", "95 % interval", "natural end", "mean tokens")


def run_served(namespace: argparse.Namespace) -> int:
    """Ask a suite of EvalScope; the exit status is that of the audit."""
    options, served = collect(namespace, EvalOptions), collect(namespace, ServedEvalOptions)
    suite = EVALSCOPE_SUITES[options.suite or ""]
    # A folder of its own, since all of it is judged at the end.
    results = check_served(options, served) / suite.name
    for flag, given in (("--task", options.task), ("--text-only", options.text_only)):
        if given:
            raise UsageError(f"{flag}: is for suites of this package, not for {suite.name}")
    if not is_address(namespace.partner):
        raise UsageError(
            f"{namespace.partner}: suite {suite.name} asks a server; start 'ninfer serve "
            f"{namespace.partner}' and give its address in place of the artifact"
        )
    python = python_with_evalscope(served.evalscope)
    configure("warning")
    key = os.environ.get(served.key_env)
    run = EvalScopeRun(
        suite=suite,
        root=root_of(namespace.partner),
        model=served.model or "",
        results=results,
        concurrency=options.concurrency,
        thinking=served.thinking,
        limit=options.limit,
        max_tokens=served.max_new,
        data=served.data,
    )
    run.task()  # so that what is wrong is said before a server is asked
    with ChatServer(run.root, key, served.key_env) as server:
        run = replace(run, model=served.model or _first_model(server))
    run_evalscope(run, python, key)
    found = read_responses(results)
    if not options.json:
        print_table(COLUMNS, [_score_row(suite.name, found)])
    return show_audit(found, AuditOptions(json=options.json))


def _first_model(server: ChatServer) -> str:
    cards = server.models()
    if not cards:
        raise UsageError(f"{server.root}: lists no model; name one by --model")
    return cards[0].id


def _score_row(suite: str, responses: Sequence[StoredResponse]) -> tuple[str, ...]:
    """Right answers by EvalScope's grader; an answer that has no grade counts as wrong."""
    total = len(responses)
    right = sum(_is_right(response.contract) for response in responses)
    low, high = wilson(right, total)
    natural = sum(response.finish_reason == "stop" for response in responses)
    counted = [r.usage.completion for r in responses if r.usage.completion is not None]
    mean = f"{sum(counted) / len(counted):.1f}" if counted else "unknown"
    return (
        suite,
        str(total),
        f"{right / total:.1%}",
        f"{low:.1%} .. {high:.1%}",
        f"{natural / total:.1%}",
        mean,
    )


def _is_right(contract: Any) -> bool:
    return bool(contract) and contract.get("right") is True
