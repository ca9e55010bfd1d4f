"""Decode rate of a small synthetic hybrid on the CPU, beside what memory bandwidth would allow."""

import math
import tempfile
from pathlib import Path
from typing import Final

import torch

from ninfer.artifact import TensorEntry, open_artifact
from ninfer.bench.report import Row, rate_row
from ninfer.bench.timer import Timing, measure
from ninfer.convert import synthesise
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.errors import GenerationError
from ninfer.request import ContentPart, Conversation, GenerationResult, Message

LIKE: Final = "qwen3.6-27b"
PROMPT: Final = "Count the pages, then the state slots, and say which are more."
COPY_BYTES: Final = 1 << 28


def generate(engine: Engine, max_new: int, seed: int) -> GenerationResult:
    """One sampled generation, text discarded."""
    message = Message("user", (ContentPart("text", PROMPT),))
    prompt = engine.prepare(Conversation((message,)))
    options = GenerationOptions(max_new=max_new, temperature=1.0, seed=seed)
    *_, last = engine.generate(prompt, options)
    assert isinstance(last, GenerationResult)
    return last


def check(engine: Engine, max_new: int, seed: int) -> None:
    """Raise GenerationError unless the same seed gives the same tokens and another seed others."""
    first, again = (generate(engine, max_new, seed).token_ids for _ in range(2))
    other = generate(engine, max_new, seed + 1).token_ids
    if first != again or first == other:
        raise GenerationError(f"seed {seed} does not fix the tokens; nothing was timed")


def decode_timing(engine: Engine, max_new: int, repeats: int) -> Timing:
    """Seconds per token after the first, over generations with different seeds."""
    per_token = []
    for seed in range(repeats):
        result = generate(engine, max_new, seed)
        if len(result.token_ids) > 1:
            per_token.append(result.decode_seconds / (len(result.token_ids) - 1))
    if not per_token:
        raise GenerationError("every generation ended at its first token; nothing was timed")
    per_token.sort()
    return Timing(per_token[len(per_token) // 2], per_token[0], per_token[-1], len(per_token))


def matrix_parameters(path: Path) -> int:
    """Entries of the text decoder's matrices that every token reads, so without the embedding."""
    with open_artifact(path) as artifact:
        return sum(
            math.prod(entry.shape)
            for entry in artifact.directory.entries
            if isinstance(entry, TensorEntry)
            and entry.name.startswith(("text/layers/", "text/output_head"))
            and len(entry.shape) == 2
        )


def bandwidth(repeats: int) -> float:
    """Bytes per second that a large copy moves, read and written bytes together."""
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8)
    target = torch.zeros_like(source)
    copied = measure(lambda: target.copy_(source), repeats=repeats)
    return 2 * COPY_BYTES / copied.median


def run(*, scale: str = "tiny", max_new: int = 64, repeats: int = 5) -> list[Row]:
    """Check, then time decoding with one sequence and weights decoded to float32."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.ninfer"
        synthesise(path, like=LIKE, scale=scale)
        parameters = matrix_parameters(path)
        engine = Engine.load(
            EngineOptions(artifact=path, device="cpu", weights="decoded", activations="fp32")
        )
        check(engine, min(max_new, 16), seed=0)
        timing = decode_timing(engine, max_new, repeats)
        del engine
    roof = bandwidth(repeats) / (4 * parameters)
    shape: dict[str, int | str] = {
        "like": LIKE,
        "parameters": parameters,
        "sequences": 1,
        "max_new": max_new,
    }
    return [rate_row("decode", shape, "tok/s", 1.0, timing, ("reading weights once", roof))]
