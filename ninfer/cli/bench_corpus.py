"""`ninfer bench corpus`: ask a server or an artifact the corpus, and end in the audit."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from ninfer.artifact.packaged import NAMES, locate
from ninfer.audit import AuditOptions, ResponseFile, check_audit
from ninfer.bench.corpus import (
    SEEDS,
    Ask,
    Campaign,
    CorpusOptions,
    check_corpus,
    load_fixtures,
    parse_modes,
    plan_asks,
    set_names,
)
from ninfer.bench.corpus.options import samplings
from ninfer.cli.arguments import Parser, add_options, collect, parse, path_of
from ninfer.cli.audit import show_audit
from ninfer.cli.output import byte_progress, item_progress, print_table
from ninfer.client import ChatServer, root_of
from ninfer.engine.options import EngineOptions, check_engine
from ninfer.errors import UsageError
from ninfer.log import configure

# Engine options that follow from the fixtures and the mode, or that would change what is measured.
_IMPLIED = (
    *("max_context", "max_concurrency", "max_pending_requests", "vision", "spec", "draft_tokens"),
    *("prefix_cache_mib", "prefix_host_mib", "prefix_dir", "prefix_disk_mib", "reuse_decoded"),
    "chat_template",
)
# What the question takes that only warms up.
_WARM_UP_TOKENS = 256


def build_parser() -> Parser:
    """The options of `ninfer bench corpus`."""
    parser = Parser(
        "bench corpus",
        "Ask a server or an artifact the fixtures of the corpus with fixed seeds, store every "
        "response, and judge them. What the output file already holds is not asked again.",
    )
    names = " or ".join(NAMES)
    parser.add_argument(
        "artifact",
        nargs="?",
        type=lambda text: locate(path_of("ARTIFACT", text)),
        metavar="ARTIFACT",
        help=f".ninfer file; {names}: that of the package, unless a file has the name",
    )
    add_options(parser.add_argument_group("campaign"), CorpusOptions)
    add_options(parser.add_argument_group("audit"), AuditOptions)
    add_options(
        parser.add_argument_group("engine, for an artifact"), EngineOptions, without=_IMPLIED
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Run or go on with a campaign; the exit status is that of its audit."""
    namespace = parse(build_parser(), argv)
    options, audit = collect(namespace, CorpusOptions), collect(namespace, AuditOptions)
    if options.list:
        _list()
        return 0
    check_corpus(options, artifact=namespace.artifact is not None)
    check_audit(audit)
    fixtures = load_fixtures(options.set, options.fixture)
    asks = plan_asks(fixtures, samplings(options), options.seed or SEEDS, options.max_new)
    assert options.output is not None
    configure("warning")
    with ResponseFile(options.output) as file:
        campaign = Campaign(asks, file)
        try:
            if options.server is not None:
                modes = _ask_server(campaign, options)
            else:
                modes = _ask_artifact(campaign, options, namespace)
        except KeyboardInterrupt:
            print(
                f"{len(file.responses)} responses are in {options.output}; the same command goes "
                "on from there",
                file=sys.stderr,
            )
            raise
        found = [file.responses[ask.key(mode)] for mode in modes for ask in asks]
    return show_audit(found, audit)


def _list() -> None:
    rows = []
    for name in set_names():
        for fixture in load_fixtures(name):
            contract = fixture.contract["kind"] if fixture.contract else "none"
            size = str(fixture.tokens or "short")
            shows = "media" if fixture.has_media else "text"
            row = (
                name,
                fixture.name,
                fixture.category,
                shows,
                size,
                str(fixture.max_new),
                contract,
            )
            rows.append(row)
    print_table(
        ("set", "fixture", "category", "asks with", "prompt tokens", "at most", "contract"), rows
    )


def _ask_server(campaign: Campaign, options: CorpusOptions) -> list[str]:
    """Ask a server in its one mode; the name of it."""
    from ninfer.bench.corpus.server_partner import ServerPartner, listed_models

    assert options.server is not None
    if "," in options.mode:
        raise UsageError(f"--mode {options.mode}: a server runs in one mode; name that one")
    key = os.environ.get(options.key_env)
    root = root_of(options.server)
    with ChatServer(root, key, options.key_env) as server:
        cards = listed_models(server, named=options.model is not None)
    with ChatServer(root, key, options.key_env) as server:
        partner = ServerPartner(
            server,
            cards,
            model=options.model,
            extensions=options.extensions,
            alone=options.concurrency == 1,
        )
        mode = options.mode or partner.said_mode
        campaign.check_same(campaign.asks, mode, partner.model)
        _check_lengths(campaign.open(mode), partner.context)
        with item_progress(f"asking, {mode}", len(campaign.open(mode))) as advance:
            campaign.run(partner, mode, options.concurrency, advance)
    return [mode]


def _check_lengths(asks: Sequence[Ask], context: int | None) -> None:
    """Refuse fixtures that cannot fit before hours are spent on the others."""
    for ask in asks:
        tokens = (ask.fixture.tokens or 0) + ask.max_new
        if context is not None and tokens > context:
            raise UsageError(
                f"fixture {ask.fixture.name} may need {tokens} tokens, the server has {context}; "
                "lower --max-new, choose others with --fixture, or serve with more --max-context"
            )


def _ask_artifact(
    campaign: Campaign, options: CorpusOptions, namespace: argparse.Namespace
) -> list[str]:
    """Ask an engine of every mode in turn; their names."""
    modes = parse_modes(options.mode or "plain")
    path: Path = namespace.artifact
    defaults = {spec.name: spec.default for spec in fields(EngineOptions)}
    implied = {name: defaults[name] for name in _IMPLIED}
    implied["vision"] = any(ask.fixture.has_media for ask in campaign.asks)
    implied["prefix_cache_mib"] = 0  # every prompt is computed, in every mode
    base = collect(namespace, EngineOptions, artifact=path, **implied)
    for mode in modes:
        check_engine(mode.applied(base))

    from ninfer.bench.corpus.engine_partner import EnginePartner, needed_context
    from ninfer.cli.eval_engine import artifact_digest

    model = f"{path.name} sha256:{artifact_digest(base)[:16]}"
    for mode in modes:
        campaign.check_same(campaign.asks, mode.name, model)
    tokens, longest = needed_context(base, campaign.asks)
    if options.max_context is not None and tokens > options.max_context:
        raise UsageError(
            f"--max-context {options.max_context}: fixture {longest} may need {tokens} tokens"
        )
    base = replace(base, max_context=options.max_context or max(tokens, _WARM_UP_TOKENS))
    for mode in modes:
        todo = len(campaign.open(mode.name))
        if todo:
            engine = mode.applied(base)
            with byte_progress(f"loading, {mode.name}") as progress:
                partner = EnginePartner(engine, model, (str(path),), progress)
            try:
                with item_progress(f"asking, {mode.name}", todo) as advance:
                    campaign.run(partner, mode.name, 1, advance)
            finally:
                partner.close()
    return [mode.name for mode in modes]
