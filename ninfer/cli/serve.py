"""`ninfer serve`: the OpenAI and Anthropic protocols over HTTP, until a signal ends it."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

from ninfer.cli.arguments import Parser, add_artifact, add_options, collect, given_names, parse
from ninfer.cli.output import byte_progress
from ninfer.engine.options import EngineOptions
from ninfer.errors import UsageError
from ninfer.log import configure, get_logger
from ninfer.server.options import ServedEngineOptions, ServerOptions, check_server
from ninfer.server.supervisor import ENGINE_FAILED, supervise

if TYPE_CHECKING:
    from ninfer.server.journal import Spans

_log = get_logger(__name__)
_KEY_VARIABLE: Final = "NINFER_API_KEY"
# Set by a supervising process for the one that serves.
_CHILD: Final = "NINFER_SUPERVISED"


def build_parser() -> Parser:
    """The options of `ninfer serve`, read from the option dataclasses."""
    parser = Parser("serve", "Serve the model of an artifact over HTTP.")
    add_artifact(parser, "ARTIFACT")
    for group, options in (("server", ServerOptions), ("engine", ServedEngineOptions)):
        add_options(parser.add_argument_group(group), options)
    return parser


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    namespace = parse(build_parser(), argv)
    options = collect(namespace, ServerOptions)
    asked = collect(namespace, ServedEngineOptions, artifact=namespace.artifact)
    engine_options = engine_of(asked, options)
    check_server(options, engine_options)
    given = given_names(namespace, ServedEngineOptions) | _changed(asked, engine_options)
    configure(options.log_level, as_json=options.log_json)
    if options.restart and not os.environ.get(_CHILD):
        os.environ[_CHILD] = "1"
        return supervise(["serve", *argv])
    if namespace.api_key:
        _log.warning(
            "others on this machine can read --api-key; set %s or use --api-key-file", _KEY_VARIABLE
        )

    # Importing torch takes a second; options are checked before.
    from ninfer.engine import AsyncEngine, Engine
    from ninfer.engine.card_plan import chosen
    from ninfer.server.loading import answering
    from ninfer.server.reports import server_start
    from ninfer.server.serve import listen, serve
    from ninfer.server.service import Service

    spans = spans_of(options)
    # Before the weights are read, which may take minutes: a taken port is known at once.
    listener = listen(options.host, options.port)
    if options.auto:
        engine_options = chosen(engine_options, given)
        check_server(options, engine_options)
    with answering(listener), byte_progress("loading") as progress:
        engine = Engine.load(engine_options, progress)

    async def run() -> bool:
        served = AsyncEngine(engine)
        service = Service(served, options, spans)
        service.log.write("server_start", **server_start(options, engine_options, served))
        await serve(service, listener)
        return served.has_failed

    return ENGINE_FAILED if asyncio.run(run()) else 0


def _changed(before: EngineOptions, after: EngineOptions) -> frozenset[str]:
    """Fields that the server's own names of options have changed."""
    names = (spec.name for spec in fields(before))
    return frozenset(name for name in names if getattr(before, name) != getattr(after, name))


def spans_of(options: ServerOptions) -> "Spans | None":
    """What makes traces, if they are wanted. Raises UsageError where OpenTelemetry is missing."""
    if options.otlp_traces_endpoint is None:
        return None
    try:
        from ninfer.server.traces import exporting
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--otlp-traces-endpoint needs {error.name}; pip install 'ninfer[otel]'"
        ) from None
    return exporting(options.otlp_traces_endpoint)


def engine_of(engine: EngineOptions, options: ServerOptions) -> EngineOptions:
    """The engine's options, with what the server's own names of them say.

    Raises UsageError for two names of one option that contradict each other.
    """
    if not options.prefix_reuse:
        engine = replace(engine, prefix_cache_mib=0)
    host = options.host_context_mib
    if host is None:
        return engine
    if engine.prefix_host_mib not in (0, host):
        raise UsageError(
            f"--host-context-mib {host} contradicts --prefix-host-mib {engine.prefix_host_mib}; "
            "give one of them"
        )
    return replace(engine, prefix_host_mib=host)
