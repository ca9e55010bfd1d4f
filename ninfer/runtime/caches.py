"""Allocate the KV pages and state slots that a model's cache specification asks for."""

import torch

from ninfer.formats.kv import KV_FORMATS
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
    fmt = KV_FORMATS[runtime.kv_format]
    shape = (runtime.pages, PAGE_SIZE, heads)

    def words() -> torch.Tensor:
        return torch.zeros((*shape, head_dim), dtype=fmt.dtype, device=runtime.device)

    def scales() -> torch.Tensor | None:
        groups = fmt.groups(head_dim)
        if not groups:
            return None
        return torch.zeros((*shape, groups), dtype=torch.float16, device=runtime.device)

    return PagedKV(runtime.kv_format, words(), words(), scales(), scales())
