"""What a user may ask of the server: defaults, help texts and checks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.engine.generation_options import PRESET, GenerationOptions, check_generation
from ninfer.engine.options import EngineOptions, check_engine
from ninfer.errors import UnsupportedError, UsageError
from ninfer.log import LEVELS
from ninfer.options import check_choices, option, refuse_later
from ninfer.request import SAMPLING_NAMES

_MOST_PORT: Final = 65535
_SAMPLING: Final = ("greedy", *SAMPLING_NAMES)


@dataclass(frozen=True, slots=True)
class ServedEngineOptions(EngineOptions):
    """The engine's options with the defaults of a server."""

    max_context: int = option(8192, "tokens one sequence may hold", metavar="N")
    media_cache_mib: int = option(
        1024, "memory for decoded images and videos that may come again; 0: none", metavar="N"
    )


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What is fixed when the server starts, besides the engine's options."""

    host: str = option("127.0.0.1", "address to listen on", metavar="HOST")
    port: int = option(8080, "port to listen on, 1..65535; 0: any free one", metavar="N")
    api_key: tuple[str, ...] = option(
        (),
        "key that clients must send; repeatable. Others on this machine can read command lines: "
        "prefer the variable, or --api-key-file",
        metavar="KEY",
        environment="NINFER_API_KEY",
    )
    api_key_file: Path | None = option(
        None,
        "file of keys, one a line, each with limits on answers if wanted: KEY "
        "requests_per_minute=60 concurrent=4; counting tokens is free",
        metavar="FILE",
    )
    model_id: str | None = option(
        None, "name of the model for clients", metavar="ID", unset="that of the artifact"
    )
    model_alias: tuple[str, ...] = option(
        (), "another name by which clients may ask for it; repeatable", metavar="ID"
    )
    default_max_tokens: int = option(
        8192, "tokens of an answer for which the client gives no limit", metavar="N"
    )
    default_thinking_budget: int | None = option(
        None, "tokens of thinking for which the client gives no limit", metavar="N"
    )
    thinking: bool = option(True, "answer without thinking, unless a request asks for it")
    preserve_thinking: bool = option(
        False, "keep thoughts of earlier turns in the prompt, unless a request says otherwise"
    )
    greedy: bool = option(False, "temperature 0 for every request, whatever it asks")
    temperature: float | None = option(
        None, "0..2, where a request gives none", metavar="X", unset=PRESET
    )
    top_p: float | None = option(None, "the same for top_p, 0..1", metavar="X", unset=PRESET)
    top_k: int | None = option(None, "the same for top_k; 0 is all", metavar="N", unset=PRESET)
    min_p: float | None = option(None, "the same for min_p, 0..1", metavar="X", unset=PRESET)
    presence_penalty: float | None = option(
        None, "the same for presence_penalty, -2..2", metavar="X", unset=PRESET
    )
    frequency_penalty: float | None = option(
        None, "the same for frequency_penalty, -2..2", metavar="X", unset=PRESET
    )
    repetition_penalty: float | None = option(
        None, "the same for repetition_penalty, 0.01..10", metavar="X", unset=PRESET
    )
    seed: int | None = option(
        None, "seed where a request gives none", metavar="N", unset="a new random one each time"
    )
    loop_guard: bool = option(False, "end answers that repeat the same 1..256 tokens over and over")
    prefix_reuse: bool = option(True, "compute every prompt anew; the same as --prefix-cache-mib 0")
    host_context_mib: int | None = option(
        None, "another name of --prefix-host-mib", metavar="N", unset="--prefix-host-mib"
    )
    device_state_slots: int | None = option(
        None,
        "recurrent states on the device: one for each sequence that runs, so no other number than "
        "--max-concurrency is taken",
        metavar="N",
        unset="--max-concurrency",
    )
    context_cost_presets: Path | None = option(
        None,
        "file of measured costs of moving contexts; refused, since they would choose nothing",
        metavar="FILE",
        unset="none",
    )
    auto: bool = option(
        False,
        "choose the engine's options that are not given by what fits; what gives way is logged",
    )
    jev: bool = option(False, "score branches of an answer", later="*")
    max_request_mib: int = option(384, "size of a request's body", metavar="N")
    media_live_mib: int = option(
        2048, "memory for images and videos of requests under way", metavar="N"
    )
    media_preprocess_threads: int = option(
        0,
        "threads that render prompts and decode media; 0: as many as there are cores",
        metavar="N",
    )
    private_media: bool = option(
        False, "allow media URLs that lead into private networks of this machine"
    )
    request_log_jsonl: Path | None = option(
        None,
        "file to which a line is added for each event of a request; never its text",
        metavar="FILE",
        unset="none",
    )
    activity_file: Path | None = option(
        None,
        "file touched at the start, and while requests are served; its age is the idleness",
        metavar="FILE",
        unset="none",
    )
    response_store_max_records: int = option(
        1024, "stored responses that clients may refer to", metavar="N"
    )
    response_store_max_mib: int = option(256, "memory for stored responses", metavar="N")
    cors: bool = option(False, "let pages of any origin call the server")
    cors_origin: tuple[str, ...] = option(
        (),
        "origin whose pages may call it, https://chat.example for one; repeatable",
        metavar="URL",
    )
    allowed_host: tuple[str, ...] = option(
        (),
        "name by which clients reach the server; repeatable, * is any name",
        metavar="NAME",
        unset="this machine's names and addresses if --host is a loopback, else any",
    )
    keep_alive_ms: int = option(
        5000, "milliseconds of silence after which a stream sends a sign of life", metavar="N"
    )
    drain_s: int = option(
        30, "seconds in which requests under way may finish after SIGTERM", metavar="N"
    )
    restart: bool = option(False, "start again when the engine has failed")
    otlp_traces_endpoint: str | None = option(
        None,
        "collector of OpenTelemetry traces, http://localhost:4318/v1/traces for one; needs "
        "ninfer[otel]. Traces hold no text",
        metavar="URL",
        unset="no traces",
    )
    log_stats_interval_ms: int = option(
        5000, "milliseconds between lines of throughput in the log; 0: none", metavar="N"
    )
    log_level: str = option("info", "least severe log line to print", choices=LEVELS)
    log_json: bool = option(False, "log lines as JSON objects")


def defaults_of(options: ServerOptions) -> GenerationOptions:
    """What holds for a request that says nothing; None still means the model's preset."""
    given = {name: getattr(options, name) for name in _SAMPLING}
    return GenerationOptions(
        max_new=options.default_max_tokens,
        thinking=options.thinking,
        thinking_budget=options.default_thinking_budget,
        loop_guard=options.loop_guard,
        seed=options.seed or 0,
        **given,
    )


def check_server(options: ServerOptions, engine: EngineOptions) -> None:
    """Check values that need no artifact. Raises UsageError naming the option and the value."""
    refuse_later(options)
    check_choices(options)
    check_engine(engine)
    if not 0 <= options.port <= _MOST_PORT:
        raise UsageError(f"--port {options.port}: must be 1..{_MOST_PORT}, or 0 for any free one")
    for name in (
        "default_max_tokens",
        "max_request_mib",
        "media_live_mib",
        "response_store_max_records",
        "response_store_max_mib",
        "keep_alive_ms",
    ):
        _check(options, name, least=1)
    for name in ("media_preprocess_threads", "log_stats_interval_ms", "drain_s"):
        _check(options, name, least=0)
    if any(not key or key.split() != [key] for key in options.api_key):
        raise UsageError("--api-key: a key is one word without white space")
    _check_contexts(options, engine)
    endpoint = options.otlp_traces_endpoint
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise UsageError(f"--otlp-traces-endpoint {endpoint}: must begin with http:// or https://")
    log = options.request_log_jsonl
    if log is not None and log.resolve() == engine.artifact.resolve():
        raise UsageError(f"--request-log-jsonl {log}: is the artifact; name another file")
    check_generation(defaults_of(options))


def _check_contexts(options: ServerOptions, engine: EngineOptions) -> None:
    """Options for states and contexts that wait: here a sequence that has begun keeps its state."""
    slots, concurrency = options.device_state_slots, engine.max_concurrency
    if slots is not None and slots != concurrency:
        raise UsageError(
            f"--device-state-slots {slots}: each of --max-concurrency {concurrency} sequences has "
            f"one, and checkpoints are in the prefix cache (--prefix-cache-mib); give {concurrency}"
            ", or leave it out"
        )
    if options.context_cost_presets is not None:
        raise UnsupportedError(
            f"--context-cost-presets {options.context_cost_presets}: measured costs choose nothing "
            "here: the prefix cache goes by the work that an entry saves (--prefix-cache-mib, "
            "--prefix-host-mib); leave it out"
        )


def _check(options: ServerOptions, name: str, *, least: int) -> None:
    value = getattr(options, name)
    if value < least:
        flag = "--" + name.replace("_", "-")
        raise UsageError(f"{flag} {value}: must be {least} or more")
