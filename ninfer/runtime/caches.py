"""Allocate the KV pages and state slots that a model's cache specification asks for."""

import torch

from ninfer.formats.kv import kv_format, word_dtype
from ninfer.models.config import ModelConfig
from ninfer.models.forward_batch import Caches, GdnState, StateCacheSpec, cache_spec
from ninfer.ops.tensors import ConvState, DeltaState, PagedKV
from ninfer.runtime.config import PAGE_SIZE, RuntimeConfig


def allocate_caches(config: ModelConfig, runtime: RuntimeConfig) -> Caches:
    """Zeroed caches for all layers; they live as long as the runtime."""
    text, spec = config.text, cache_spec(config)
    pending = torch.zeros(runtime.state_slots, dtype=torch.int64, device=runtime.device)
    # Between calls it is zero, and layers run one after another: one serves all.
    size = (runtime.state_slots, spec.state.key_heads)
    arrivals = torch.zeros(size, dtype=torch.int32, device=runtime.device)
    return Caches(
        attention={
            layer: paged_kv(runtime, spec.kv.heads, spec.kv.head_dim)
            for layer in text.attention_layers
        },
        gdn={layer: _state(runtime, spec.state, pending, arrivals) for layer in text.gdn_layers},
        pending=pending,
    )


def _state(
    runtime: RuntimeConfig, spec: StateCacheSpec, pending: torch.Tensor, arrivals: torch.Tensor
) -> GdnState:
    slots, window = runtime.state_slots, runtime.window
    heads, value_dim, key_dim = spec.recurrent_shape

    def zeros(*shape: int, dtype: torch.dtype = runtime.dtype) -> torch.Tensor:
        return torch.zeros((slots, *shape), dtype=dtype, device=runtime.device)

    return GdnState(
        conv=ConvState(
            inputs=zeros(*spec.conv_shape),
            window=zeros(window, spec.conv_shape[1]),
            pending=pending,
        ),
        delta=DeltaState(
            matrix=zeros(*spec.recurrent_shape, dtype=runtime.state_dtype),
            keys=zeros(window, spec.key_heads, key_dim),
            values=zeros(window, heads, value_dim),
            decays=zeros(window, heads, dtype=torch.float32),
            betas=zeros(window, heads, dtype=torch.float32),
            pending=pending,
            arrivals=arrivals,
        ),
    )


def paged_kv(runtime: RuntimeConfig, heads: int, head_dim: int) -> PagedKV:
    """Zeroed pages of one layer in the runtime's KV format."""
    entry = kv_format(runtime.kv_format)
    groups, width = entry.scale_groups(head_dim), entry.words(head_dim)
    words = word_dtype(runtime.kv_format)
    shape = (runtime.pages, PAGE_SIZE, heads)

    def zeros(width: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros((*shape, width), dtype=dtype, device=runtime.device)

    return PagedKV(
        format=runtime.kv_format,
        keys=zeros(width, words),
        values=zeros(width, words),
        key_scales=zeros(groups, torch.float16) if groups else None,
        value_scales=zeros(groups, torch.float16) if groups else None,
    )
