"""What a server says of itself: at its start, and every few seconds while it works."""

import asyncio
import platform
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from ninfer.engine import AsyncEngine, EngineOptions, EngineSnapshot
from ninfer.log import get_logger
from ninfer.server.options import ServerOptions
from ninfer.server.request_log import RequestLog
from ninfer.version import VERSION

_log = get_logger(__name__)
_HIDDEN: Final = "api_key"


def server_start(
    options: ServerOptions, engine: EngineOptions, loaded: AsyncEngine
) -> dict[str, Any]:
    """The fields of the event `server_start`. No key stands in them."""
    facts = loaded.engine.facts
    shown = {
        spec.name: _plain(getattr(options, spec.name))
        for spec in fields(options)
        if spec.name != _HIDDEN
    }
    shown["api_key_configured"] = bool(options.api_key or options.api_key_file)
    path = engine.artifact
    return {
        "server": shown,
        "artifact": {
            "path": str(path),
            "size_bytes": path.stat().st_size if path.is_file() else None,
            "target": facts.model_id,
        },
        "engine": {
            **{spec.name: _plain(getattr(engine, spec.name)) for spec in fields(engine)},
            **asdict(facts),
        },
        "environment": {
            "device": facts.device,
            "ninfer": VERSION,
            "python": platform.python_version(),
            "system": platform.platform(),
        },
    }


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


async def report_throughput(engine: AsyncEngine, log: RequestLog, seconds: float) -> None:
    """A line of counts every `seconds` in which something was done, until it is cancelled."""
    before, since = engine.engine.snapshot(), time.monotonic()
    generated, steps = engine.generated_tokens, engine.steps
    while True:
        await asyncio.sleep(seconds)
        now, at = engine.engine.snapshot(), time.monotonic()
        tokens, rounds = engine.generated_tokens - generated, engine.steps - steps
        if rounds:
            _report(log, before, now, at - since, tokens, rounds)
        before, since = now, at
        generated, steps = generated + tokens, steps + rounds


def _report(
    log: RequestLog,
    before: EngineSnapshot,
    now: EngineSnapshot,
    seconds: float,
    tokens: int,
    rounds: int,
) -> None:
    load = now.load
    asked = now.prefix_asked_tokens - before.prefix_asked_tokens
    reused = now.prefix_reused_tokens - before.prefix_reused_tokens
    _log.info(
        "last %.1f s: %d tokens generated in %d steps; %d running, %d waiting; %d of %d KV pages",
        seconds,
        tokens,
        rounds,
        load.running,
        load.waiting,
        load.pages - load.free_pages,
        load.pages,
    )
    log.write(
        "throughput",
        interval_seconds=seconds,
        tokens={"computed_prefill": asked - reused, "committed_decode": tokens},
        throughput_tokens_per_second={
            "prefill": (asked - reused) / seconds,
            "decode": tokens / seconds,
        },
        scheduler={
            "running": load.running,
            "prefilling": load.prefilling,
            "decode_ready": load.running - load.prefilling,
            "waiting": load.waiting,
        },
        decode_batch={
            "rounds": rounds,
            "row_rounds": tokens,
            "average_size": tokens / rounds,
        },
    )
