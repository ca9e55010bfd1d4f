"""Calls that between them launch every kernel of a model's Gated DeltaNet layers."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Final

import torch
from torch import Tensor

from ninfer.models.config import ModelConfig
from ninfer.models.forward_batch import ForwardBatch, GdnState, cache_spec
from ninfer.models.inventory import TensorSpec
from ninfer.models.qwen3_6.gdn import gdn_mixer
from ninfer.models.qwen3_6.inventory import inventory
from ninfer.models.qwen3_6.products import meta_weight
from ninfer.models.qwen3_6.recipe import Recipe
from ninfer.models.qwen3_6.weights import GdnWeights, bind_text
from ninfer.ops.tensors import ConvState, DeltaState, RaggedRows, StoredWeight

_META: Final = torch.device("meta")
_STATES: Final = (torch.float32, torch.bfloat16)


def mixer_calls(
    config: ModelConfig, recipe: Recipe, tokens: Sequence[int]
) -> Iterator[Callable[[], object]]:
    """The mixer of the first recurrent layer with each token count and type of state, in bf16."""
    specs = {s.name: s for s in inventory(config, recipe) if isinstance(s, TensorSpec)}

    def source(object_name: str) -> StoredWeight:
        spec = specs[object_name]
        return meta_weight(spec.format, spec.shape)

    layers = bind_text(source, config, recipe).layers
    weights = next(layer.mixer for layer in layers if isinstance(layer.mixer, GdnWeights))
    for count in tokens:
        hidden = _empty(count, config.text.hidden)
        for kept, holds in product(_STATES, (True, False)):
            batch, state = _batch(count, holds=holds), _state(config, kept)
            yield partial(gdn_mixer, hidden, weights, config.text, batch, state)


def _empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=_META)


def _batch(count: int, *, holds: bool) -> ForwardBatch:
    """One sequence; with `holds` some of its rows may be held."""
    integers = partial(_empty, dtype=torch.int64)
    rows = RaggedRows(
        offsets=integers(2),
        kv_lengths=integers(1),
        page_table=integers(1, 1),
        state_slots=integers(1),
        held=_empty(1, dtype=torch.bool) if holds else None,
    )
    return ForwardBatch(
        tokens=integers(count),
        positions=integers(3, count),
        rows=rows,
        kv_slots=integers(count),
        logit_rows=integers(1),
    )


def _state(config: ModelConfig, kept: torch.dtype, slots: int = 2, window: int = 4) -> GdnState:
    spec = cache_spec(config).state
    past, channels = spec.conv_shape
    heads, value_dim, key_dim = spec.recurrent_shape
    pending = _empty(slots, dtype=torch.int64)
    decays, betas = (_empty(slots, window, heads, dtype=torch.float32) for _ in range(2))
    return GdnState(
        conv=ConvState(_empty(slots, past, channels), _empty(slots, window, channels), pending),
        delta=DeltaState(
            _empty(slots, heads, value_dim, key_dim, dtype=kept),
            _empty(slots, window, spec.key_heads, key_dim),
            _empty(slots, window, heads, value_dim),
            decays,
            betas,
            pending,
            _empty(slots, spec.key_heads, dtype=torch.int32),
        ),
    )
