"""What a user may ask of `ninfer bench box`: defaults, help and checks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.errors import UsageError
from ninfer.options import option

STREAMS: Final = "1,2,4,8"
_MOST_STREAMS: Final = 256


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Whom to ask, how much, and where the report goes."""

    server: str | None = option(
        None, "address of any server, measured from here", metavar="URL", unset="the machine's own"
    )
    port: int = option(8080, "port of the server on the machine")
    tokens: int | None = option(
        None, "tokens of each stream", metavar="N", unset="$NINFER_BENCH_TOKENS, else 600"
    )
    model: str | None = option(None, "model to ask", metavar="ID", unset="the first that is listed")
    price: float | None = option(
        None, "dollars an hour, for the cost of tokens", metavar="USD", unset="the machine's own"
    )
    key_env: str = option(
        "NINFER_API_KEY", "variable with the server's key, of the environment or .env"
    )
    extensions: bool = option(
        True, "send nothing beyond OpenAI's protocol; the server may think then, if it does"
    )
    seconds: float = option(900.0, "limit of one answer", metavar="S")
    fail_under: float | None = option(
        None, "exit status 1 when less than X percent of the responses are usable", metavar="X"
    )
    output: Path | None = option(
        None,
        "JSON report; responses lie beside it as .jsonl, for 'ninfer audit'",
        metavar="FILE",
        unset="a new one among the fleet's records",
    )
    json: bool = option(False, "print the report in place of the tables")


def parse_streams(text: str) -> tuple[int, ...]:
    """`1,2,4,8` as numbers. Raises UsageError for what is none, comes twice or is too many."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(f"{text!r}: streams are numbers with commas between them, as {STREAMS}")
    streams = tuple(map(int, words))
    if len(set(streams)) < len(streams) or not all(0 < n <= _MOST_STREAMS for n in streams):
        raise UsageError(f"{text!r}: streams are from 1 to {_MOST_STREAMS}, each once")
    return streams


def check_bench(options: BenchOptions) -> None:
    """Raises UsageError naming the option and the value that is wrong."""
    if options.tokens is not None and options.tokens < 2:
        raise UsageError(f"--tokens {options.tokens}: must be at least 2")
    if not 0 < options.port < 65536:
        raise UsageError(f"--port {options.port}: must be 1..65535")
    if options.seconds <= 0:
        raise UsageError(f"--seconds {options.seconds}: must be above 0")
    if options.price is not None and options.price < 0:
        raise UsageError(f"--price {options.price}: must not be negative")
    if options.fail_under is not None and not 0 <= options.fail_under <= 100:
        raise UsageError(f"--fail-under {options.fail_under}: must be 0..100")
    if options.output is not None and not options.output.parent.is_dir():
        raise UsageError(f"--output {options.output}: the folder does not exist")
