"""One start of an engine with one greedy answer, and what was compiled for it."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ninfer.engine import Engine
from ninfer.engine.generation_options import GenerationOptions
from ninfer.engine.options import EngineOptions, check_engine
from ninfer.frontend import SourceRules, parse_conversation
from ninfer.kits.home import any_kit
from ninfer.kits.options import StartOptions
from ninfer.kits.use import use_kit
from ninfer.ops.compiler_runs import counting
from ninfer.request import GenerationResult


def start(artifact: Path, options: StartOptions) -> dict[str, Any]:
    """Seconds of loading and answering, ids of the answer, compilations, and whether a kit served.

    Raises UnsupportedError in a process that interprets kernels, and what `Engine.load` raises.
    """
    engine_options = EngineOptions(
        artifact,
        device=options.device,
        backend=options.backend,
        kv_dtype=options.kv_dtype,
        spec=options.spec,
    )
    check_engine(engine_options)
    generation = GenerationOptions(greedy=True, max_new=options.max_new, thinking=False)
    with counting() as runs:
        with_kit = any_kit() and use_kit()
        begun = time.perf_counter()
        engine = Engine.load(engine_options)
        loaded = time.perf_counter()
        conversation = parse_conversation([{"role": "user", "content": options.prompt}], None)
        prompt = engine.prepare(conversation, SourceRules())
        (result,) = (
            event
            for event in engine.generate(prompt, generation)
            if isinstance(event, GenerationResult)
        )
        answered = time.perf_counter()
        engine.close()
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "kit": with_kit,
        "load_seconds": round(loaded - begun, 3),
        "answer_seconds": round(answered - loaded, 3),
        "compiled": {**asdict(runs), "kernels": runs.kernels},
        "token_ids": list(result.token_ids),
    }
