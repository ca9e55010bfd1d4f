"""A model of random weights on a device, its runtime, and sequences seated at any context."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.convert import full_size_weights
from ninfer.engine.options import EngineOptions
from ninfer.engine.speculation import DrafterModel, bind_drafter, build_speculation
from ninfer.models import ModelConfig
from ninfer.models.qwen3_6 import TextWeights, bind_text, recipe_for
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.ops.tensors import StoredWeight
from ninfer.request import SamplingParams
from ninfer.runtime import RoundOptions, Runtime, RuntimeConfig, SequenceRequest, Status, pages_for
from ninfer.runtime import Sequence as Running
from ninfer.runtime.requests import new_sequence
from ninfer.runtime.rounds import DecodeRounds, RoundShape
from ninfer.runtime.speculative import AdaptiveWindow, CombinedProposer, MtpProposer, Speculation

# Tokens behind a context that a measurement may generate.
MARGIN: Final = 4096
# Of cached keys and values, whose words are random: activations stay in a usual range.
_SCALE: Final = 0.01
_MOST_TOKENS: Final = 1 << 20


@dataclass(frozen=True)
class BenchModel:
    """Text decoder and MTP drafter of random words, made on the device without a file."""

    like: str
    scale: str
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def _source(self) -> Any:
        return full_size_weights(self.like, device=self.device, scale=self.scale)

    @property
    def config(self) -> ModelConfig:
        """Its sizes."""
        config: ModelConfig = self._source.model.config
        return config

    @property
    def recipe(self) -> Recipe:
        """In which objects its parameters lie."""
        return recipe_for(self.config, self._source.model.identity.weights_id)

    @cached_property
    def weights(self) -> TextWeights:
        """Bound in the resident form of the chosen kernels."""
        return bind_text(self._made, self.config, self.recipe)

    @cached_property
    def drafter(self) -> DrafterModel | None:
        """The MTP layer with the model's own head."""
        return bind_drafter(self.options, self._made, self.config, self.recipe)

    @property
    def options(self) -> EngineOptions:
        """Options of an engine with MTP."""
        return EngineOptions(Path("none"), spec="mtp")

    def _made(self, name: str) -> StoredWeight:
        stored: StoredWeight = self._source(name)
        if isinstance(stored, Tensor) and stored.dtype is torch.bfloat16:
            return stored.to(self.dtype)
        return stored


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a runtime is made for."""

    context: int  # of the longest sequence
    sequences: int = 1
    tokens: int = 0  # of KV cache for all; 0: of one sequence of full length and short others
    window: int = 1
    kv_format: str = "int8"
    chunk: int = 1024
    captures: bool = True
    ahead: int = 1
    in_rounds: bool = True


def new_runtime(
    model: BenchModel, sizes: Sizes, *, drafts: bool = False, adaptive: bool = False
) -> Runtime:
    """A runtime over the model's weights, with MTP where `drafts`; its KV words are random."""
    device = model.device
    longest = min(sizes.context + MARGIN, model.config.text.context)
    tokens = sizes.tokens or longest + sizes.sequences * MARGIN
    config = RuntimeConfig(
        device=device,
        dtype=model.dtype,
        kv_format=sizes.kv_format,
        max_context=longest,
        pages=pages_for(tokens),
        state_slots=sizes.sequences,
        prefill_chunk=sizes.chunk,
        window=sizes.window,
        rounds=RoundOptions(sizes.ahead, sizes.captures) if sizes.in_rounds else None,
    )
    speculation = None
    if drafts:
        made = build_speculation(model.options, model.config, config, model.weights, model.drafter)
        assert made is not None and isinstance(made.proposer, CombinedProposer)
        # Random text repeats itself nowhere; lookup would only cost.
        window = AdaptiveWindow() if adaptive else None
        speculation = Speculation(made.proposer.drafter, window)
    runtime = Runtime(model.weights, model.config, config, speculation=speculation)
    _fill(runtime)
    return runtime


def _fill(runtime: Runtime) -> None:
    """Random words in every page, so that attention has something to weigh."""
    for cache in runtime._runner.caches.attention.values():
        for words in (cache.keys, cache.values):
            if words.dtype.is_floating_point:
                words.normal_(std=_SCALE * 64)
            else:
                words.random_(-100, 101)
        for scales in (cache.key_scales, cache.value_scales):
            if scales is not None:
                scales.fill_(_SCALE)


def seat(runtime: Runtime, context: int, seed: int = 0, *, prefilled: int | None = None) -> Running:
    """A running sequence that has `context` tokens cached, without their having been computed.

    It decodes; with `prefilled` only so many are cached and the rest of its prompt comes next.
    """
    vocabulary = runtime._config.text.addressable
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(0, vocabulary, (context,), generator=generator).tolist()
    request = SequenceRequest(
        tuple(prompt), SamplingParams(seed=seed), _MOST_TOKENS, stop_ids=frozenset({-1})
    )
    sequence = new_sequence(request, 0.0)
    sequence.cached = context if prefilled is None else prefilled
    sequence.pages = runtime.pages.allocate(pages_for(context + 1))
    sequence.state_slot = runtime.slots.allocate()
    sequence.status = Status.RUNNING
    runtime._scheduler.running.append(sequence)
    if prefilled is None:
        sequence.append(prompt[0])
        _observed(runtime, sequence)
    return sequence


def _observed(runtime: Runtime, sequence: Running) -> None:
    """Let the drafter take the sequence for one that it has seen."""
    proposer = runtime.speculation.proposer if runtime.speculation else None
    if isinstance(proposer, MtpProposer):
        hidden = proposer.head.weight.shape[1]
        like = next(iter(runtime._runner.caches.gdn.values())).conv.inputs
        proposer.adopt(sequence, like.new_zeros(hidden))


@contextmanager
def seated(runtime: Runtime, context: int, count: int = 1) -> Iterator[list[Running]]:
    """So many decoding sequences for the time of the block."""
    sequences = [seat(runtime, context, seed) for seed in range(count)]
    try:
        yield sequences
    finally:
        for sequence in sequences:
            runtime.cancel(sequence)
        while runtime.rounds and runtime.rounds.under_way:
            runtime.step()


def rounds_of(runtime: Runtime) -> DecodeRounds:
    """The rounds of a runtime that has them."""
    assert runtime.rounds is not None
    return runtime.rounds


@torch.inference_mode()
def round_seconds(
    runtime: Runtime, sequences: Sequence[Running], shape: RoundShape, repeats: int
) -> list[float]:
    """Seconds on the device of `repeats` rounds of a shape, one after the other, ascending.

    Drafts that somebody has to give are random: hardly one is right.
    """
    rounds = rounds_of(runtime)
    table, warm_up = rounds.model.table, 3
    for sequence in sequences:
        reach = sequence.cached + 1 + (warm_up + repeats) * shape.width
        assert runtime._scheduler.reserve(sequence, reach), reach
    table.write(0, sequences)
    if shape.given:
        table.give([[1] * (shape.width - 1)] * shape.count, shape.width - 1)
    drafter = rounds.model.drafter
    if drafter is not None:
        drafter.join(sequences)
    found = []
    for turn in range(warm_up + repeats):
        seconds = rounds.player.start(shape).land().seconds
        if turn >= warm_up:
            assert seconds is not None, "a round that was not replayed"
            found.append(seconds)
    return sorted(found)


def with_accept(runtime: Runtime, accept: Any) -> Runtime:
    """The runtime with another rule of acceptance, before it has captured anything."""
    rounds = rounds_of(runtime)
    rounds.model = replace(rounds.model, accept=accept)
    return runtime
