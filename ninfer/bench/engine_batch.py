"""Aggregate decode rate of several sequences on the CPU, beside one sequence alone."""

import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Final

from ninfer.bench.engine_cpu import LIKE
from ninfer.bench.report import Row, rate_row
from ninfer.bench.timer import Timing
from ninfer.convert import synthesise
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.errors import GenerationError
from ninfer.request import ContentPart, Conversation, GenerationResult, Message, PreparedPrompt

COUNTS: Final = (1, 2, 4, 8)
# Steps below which a figure says little.
_LEAST_STEPS: Final = 8


def options_of(seed: int, max_new: int) -> GenerationOptions:
    """Sampled without penalties, and no stop ids in reach of a short answer's reader."""
    return GenerationOptions(
        max_new=max_new, temperature=1.0, presence_penalty=0.0, seed=seed, raw_output=True
    )


def prompt_of(engine: Engine, index: int) -> PreparedPrompt:
    """A short prompt of its own for each sequence."""
    message = Message("user", (ContentPart("text", f"Count to {index + 10}."),))
    return engine.prepare(Conversation((message,)))


def check(engine: Engine, max_new: int) -> None:
    """Raise GenerationError unless sequences give the same tokens together as alone."""
    alone = [_results(engine, [index], max_new)[0] for index in range(3)]
    if _results(engine, [0, 1, 2], max_new) != alone:
        raise GenerationError("company changes the tokens; nothing was timed")


def _results(engine: Engine, seeds: list[int], max_new: int) -> list[tuple[int, ...]]:
    generations = [
        engine.generate(prompt_of(engine, seed), options_of(seed, max_new)) for seed in seeds
    ]
    results = []
    for events in generations:
        *_, last = events
        assert isinstance(last, GenerationResult)
        results.append(last.token_ids)
    return results


def decode_rate(engine: Engine, count: int, max_new: int, first_seed: int) -> float | None:
    """Tokens per second of `count` sequences while all decode; None when one stops too soon."""
    sequences = [
        engine.submit(prompt_of(engine, index), options_of(index, max_new))[0]
        for index in range(first_seed, first_seed + count)
    ]
    for _ in range(count + 1):
        engine.step()
    tokens, start = 0, time.perf_counter()
    for _ in range(max_new // 2):
        # A stop token thins out the company, so the time ends there.
        if not all(sequence.decodes for sequence in sequences):
            break
        tokens += sum(len(progress.tokens) for progress in engine.step())
    seconds = time.perf_counter() - start
    for sequence in sequences:
        engine.cancel(sequence)
    return tokens / seconds if tokens >= _LEAST_STEPS * count else None


def decode_rates(engine: Engine, count: int, max_new: int, repeats: int) -> list[float]:
    """Rates of `repeats` companies, ascending. Raises GenerationError when too few last."""
    tried = (decode_rate(engine, count, max_new, 100 * turn) for turn in range(10 * repeats))
    found = list(islice((rate for rate in tried if rate is not None), repeats))
    if len(found) < repeats:
        raise GenerationError(f"companies of {count} end too soon; nothing was timed")
    return sorted(found)


def run(*, scale: str = "tiny", max_new: int = 64, repeats: int = 5) -> list[Row]:
    """Check, then time decoding by number of sequences; the reference is one sequence."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.ninfer"
        synthesise(path, like=LIKE, scale=scale)
        options = EngineOptions(
            artifact=path, device="cpu", max_concurrency=max(COUNTS), max_context=512
        )
        engine = Engine.load(options)
        check(engine, 8)
        rates = {count: decode_rates(engine, count, max_new, repeats) for count in COUNTS}
    alone = rates[1][repeats // 2]
    return [
        rate_row(
            "decode",
            {"like": LIKE, "scale": scale, "sequences": count},
            "tok/s",
            1.0,
            Timing(1 / found[repeats // 2], 1 / found[-1], 1 / found[0], repeats),
            ("one sequence", alone),
        )
        for count, found in rates.items()
    ]
