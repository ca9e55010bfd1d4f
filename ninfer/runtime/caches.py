"""Allocate the KV pages and state slots that a model's cache specification asks for."""

import torch

from ninfer.formats.kv import kv_format, word_dtype
from ninfer.models.config import ModelConfig
from ninfer.models.forward_batch import Caches, GdnState, cache_spec
from ninfer.ops.tensors import PagedKV
from ninfer.runtime.config import PAGE_SIZE, RuntimeConfig


def allocate_caches(config: ModelConfig, runtime: RuntimeConfig) -> Caches:
    """Zeroed caches for all layers; they live as long as the runtime."""
    text, spec = config.text, cache_spec(config)
    conv = (runtime.state_slots, *spec.state.conv_shape)
    recurrent = (runtime.state_slots, *spec.state.recurrent_shape)
    return Caches(
        attention={
            layer: _pages(runtime, spec.kv.heads, spec.kv.head_dim)
            for layer in text.attention_layers
        },
        gdn={
            layer: GdnState(
                torch.zeros(conv, dtype=runtime.dtype, device=runtime.device),
                torch.zeros(recurrent, dtype=torch.float32, device=runtime.device),
            )
            for layer in text.gdn_layers
        },
    )


def _pages(runtime: RuntimeConfig, heads: int, head_dim: int) -> PagedKV:
    groups = kv_format(runtime.kv_format).scale_groups(head_dim)
    words = word_dtype(runtime.kv_format)
    shape = (runtime.pages, PAGE_SIZE, heads)

    def zeros(width: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros((*shape, width), dtype=dtype, device=runtime.device)

    return PagedKV(
        format=runtime.kv_format,
        keys=zeros(head_dim, words),
        values=zeros(head_dim, words),
        key_scales=zeros(groups, torch.float16) if groups else None,
        value_scales=zeros(groups, torch.float16) if groups else None,
    )
