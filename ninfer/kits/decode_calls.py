"""Decode rounds of a model on tensors without memory: what an engine's graphs launch."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import torch

from ninfer.engine.options import MOST_DRAFTS, EngineOptions
from ninfer.engine.speculation import bind_drafter, build_speculation
from ninfer.kits.launches import registered
from ninfer.models.config import ModelConfig
from ninfer.models.inventory import TensorSpec
from ninfer.models.qwen3_6.inventory import inventory
from ninfer.models.qwen3_6.products import meta_weight
from ninfer.models.qwen3_6.recipe import Recipe, recipe_for
from ninfer.models.qwen3_6.weights import bind_text
from ninfer.ops.tensors import StoredWeight
from ninfer.runtime import RoundOptions, Runtime, RuntimeConfig
from ninfer.runtime.rounds import DecodeRounds, RoundShape, layout_of, new_output, play

_META: Final = torch.device("meta")
# Sequences and rows that between them specialise every kernel: one, not a multiple of 16, 16.
SHAPES: Final = ((1, 1), (3, 1), (16, 1), (1, 2), (1, 4), (3, 4), (4, 4), (1, 8), (1, 16))


def decode_calls(name: str, kv_format: str = "int8") -> list[Callable[[], object]]:
    """Rounds of a registered model, plain and with each of its drafters, in bf16.

    Raises UsageError for a name outside `models()`.
    """
    config, weights = registered(name)
    recipe = recipe_for(config, weights)
    drafters = {"mtp": config.mtp, "dflash": config.dflash, "dflash2": config.dflash2}
    specs = (None, *(spec for spec, found in drafters.items() if found))
    return [
        call for spec in specs for call in round_calls(config, recipe, spec, kv_format=kv_format)
    ]


def round_calls(
    config: ModelConfig,
    recipe: Recipe,
    spec: str | None,
    *,
    kv_format: str = "int8",
    shapes: Sequence[tuple[int, int]] = SHAPES,
) -> Iterator[Callable[[], object]]:
    """Rounds of these numbers of sequences and rows, as far as the drafter goes."""
    rounds = rounds_without_memory(config, recipe, spec, kv_format=kv_format)
    most = 1 + (MOST_DRAFTS[spec] if spec else 0)
    for count, width in shapes:
        if width <= most:
            shape = RoundShape(count, width, observes=width > 1 or spec != "mtp")
            yield partial(play, rounds.model, layout_of(shape, _META), new_output(shape, _META))


def rounds_without_memory(
    config: ModelConfig, recipe: Recipe, spec: str | None, *, kv_format: str
) -> DecodeRounds:
    """The rounds of an engine of sixteen sequences whose tensors have no memory."""
    specs = {s.name: s for s in inventory(config, recipe) if isinstance(s, TensorSpec)}

    def source(name: str) -> StoredWeight:
        return meta_weight(specs[name].format, specs[name].shape)

    options = EngineOptions(Path("none"), spec=spec)
    runtime = RuntimeConfig(
        device=_META,
        dtype=torch.bfloat16,
        kv_format=kv_format,
        max_context=config.text.context,
        pages=4096,
        state_slots=max(count for count, _ in SHAPES),
        prefill_chunk=1024,
        window=1 + (MOST_DRAFTS[spec] if spec else 0),
        rounds=RoundOptions(),
    )
    text = bind_text(source, config, recipe)
    drafter = bind_drafter(options, source, config, recipe)
    speculation = build_speculation(options, config, runtime, text, drafter)
    made = Runtime(text, config, runtime, speculation=speculation)
    assert made.rounds is not None
    return made.rounds
