"""What a user may ask of a load on a server: defaults, help and checks."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ninfer.errors import UsageError
from ninfer.options import check_choices, option

MOST_CONCURRENT: Final = 1024
MOST_STREAMS: Final = 64
_PART: Final = re.compile(r"([0-9]{1,7})(?::([0-9]{1,6}(?:\.[0-9]{1,6})?))?")


@dataclass(frozen=True, slots=True)
class ServeLoadOptions:
    """Who is loaded with what, how the requests arrive, and what counts as served in time."""

    server: str | None = option(None, "address of a server of the OpenAI protocol", metavar="URL")
    output: Path | None = option(
        None, "file for the responses, which the audit judges; must be new", metavar="FILE"
    )
    record: Path | None = option(
        None, "also write figures and the times of every request as JSON", metavar="FILE"
    )
    requests: int = option(64, "requests in all", metavar="N")
    concurrency: int = option(8, "requests under way at most, 1..1024", metavar="N")
    rate: float | None = option(
        None,
        "requests that arrive in a second; one that finds no place waits, and its wait counts",
        metavar="X",
        unset="the next one comes when one has ended",
    )
    arrival: str = option(
        "poisson", "how they arrive at that rate", choices=("poisson", "constant")
    )
    prompt_tokens: str = option(
        "512", "tokens of a prompt, or a mix of sizes with weights: 256:3,4096:1", metavar="MIX"
    )
    output_tokens: str = option(
        "128", "most tokens of an answer, or a mix in the same form", metavar="MIX"
    )
    shared_prefix: int = option(
        0, "tokens at the beginning of a prompt that others have as well", metavar="N"
    )
    prefix_groups: int = option(1, "how many such beginnings there are", metavar="N")
    ttft_ms: float | None = option(
        None, "objective: first text after so many milliseconds at most", metavar="X"
    )
    tpot_ms: float | None = option(
        None, "objective: so many milliseconds a token at most, after the first", metavar="X"
    )
    seed: int = option(0, "of sizes, arrivals, texts and draws", metavar="N")
    temperature: float | None = option(None, "0..2; 0 is greedy", metavar="X", unset="the server's")
    model: str | None = option(
        None, "model name", metavar="NAME", unset="the first that the server lists"
    )
    key_env: str = option(
        "NINFER_API_KEY", "variable that holds the server's key", metavar="VARIABLE"
    )
    extensions: bool = option(
        True,
        "send only what the OpenAI protocol has: no switch for thinking, no wish for token ids; "
        "for servers that refuse these",
    )


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """What is generated both through HTTP and without it."""

    streams: tuple[int, ...] = option(
        (), "answers written at the same time, 1..64; repeatable", metavar="N", unset="1 and 32"
    )
    prompt_tokens: int = option(128, "tokens of a prompt, about", metavar="N")
    max_new: int = option(256, "most tokens of an answer", metavar="N")
    repeats: int = option(3, "timed runs of each, after one that is not", metavar="N")
    seed: int = option(0, "of texts and draws", metavar="N")
    record: Path | None = option(None, "also write the report as JSON", metavar="FILE")

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of streams, each once, ascending."""
        return tuple(sorted(set(self.streams))) or (1, 32)


def check_transport(options: TransportOptions) -> None:
    """Raises UsageError naming the option and the value that is wrong."""
    for count in options.counts:
        if not 1 <= count <= MOST_STREAMS:
            raise UsageError(f"--streams {count}: must be 1..{MOST_STREAMS}")
    sizes = (("--prompt-tokens", options.prompt_tokens), ("--repeats", options.repeats))
    _check_least([*sizes], 1)
    # The rate of one token would be that of prefill.
    _check_least([("--max-new", options.max_new)], 2)
    _check_least([("--seed", options.seed)], 0)
    if options.record is not None:
        check_new("--record", options.record)


@dataclass(frozen=True, slots=True)
class Mix:
    """Sizes in tokens and how often each comes, relative to the others."""

    sizes: tuple[int, ...]
    weights: tuple[float, ...]


def mix_of(flag: str, text: str) -> Mix:
    """Read 512 or 256:3,4096:1. Raises UsageError naming the option."""
    parts = [_PART.fullmatch(part.strip()) for part in text.split(",")]
    found = [(int(part[1]), float(part[2] or 1)) for part in parts if part is not None]
    if len(found) < len(parts) or any(size < 1 or weight <= 0 for size, weight in found):
        raise UsageError(f"{flag} {text!r}: must be a size such as 512, or a mix as 256:3,4096:1")
    return Mix(tuple(size for size, _ in found), tuple(weight for _, weight in found))


def check_load(options: ServeLoadOptions) -> None:
    """Raises UsageError naming the option and the value that is wrong."""
    check_choices(options)
    if options.server is None:
        raise UsageError("--server URL is missing; start one with 'ninfer serve ARTIFACT'")
    if options.output is None:
        raise UsageError("--output FILE is missing; the responses go there")
    # A mean over two runs would be of neither.
    check_new("--output", options.output)
    if not 1 <= options.concurrency <= MOST_CONCURRENT:
        raise UsageError(f"--concurrency {options.concurrency}: must be 1..{MOST_CONCURRENT}")
    least = (("--requests", options.requests), ("--prefix-groups", options.prefix_groups))
    _check_least([*least], 1)
    _check_least([("--shared-prefix", options.shared_prefix), ("--seed", options.seed)], 0)
    for flag, value in (
        ("--rate", options.rate),
        ("--ttft-ms", options.ttft_ms),
        ("--tpot-ms", options.tpot_ms),
    ):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise UsageError(f"{flag} {value}: must be positive")
    if options.temperature is not None and not 0 <= options.temperature <= 2:
        raise UsageError(f"--temperature {options.temperature}: must be 0..2")
    mix_of("--output-tokens", options.output_tokens)
    smallest = min(mix_of("--prompt-tokens", options.prompt_tokens).sizes)
    if options.shared_prefix >= smallest:
        raise UsageError(
            f"--shared-prefix {options.shared_prefix}: must be less than the smallest prompt, "
            f"{smallest} tokens"
        )


def check_new(flag: str, path: Path) -> None:
    """Raises UsageError for a file that holds something, or a folder that is not there."""
    if path.exists() and (not path.is_file() or path.stat().st_size):
        raise UsageError(f"{flag} {path}: is there already; give a new file")
    if not path.parent.is_dir():
        raise UsageError(f"{flag} {path}: the folder does not exist")


def _check_least(values: Sequence[tuple[str, int]], least: int) -> None:
    for flag, value in values:
        if value < least:
            raise UsageError(f"{flag} {value}: must be {least} or more")
