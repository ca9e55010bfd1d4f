"""What a decode step has to read, and the least time that memory needs for it."""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.bench.replay import replayed
from ninfer.bench.timer import Timing, measure
from ninfer.formats.registry import kv_format
from ninfer.lazy import lazy_exports
from ninfer.models.config import TextConfig
from ninfer.models.forward_batch import Caches
from ninfer.models.qwen3_6.weights import SparseMoeWeights, TextWeights

# Needs what only a machine with a card has.
_on_card = lazy_exports("ninfer.ops.linear.roof", {"read_all": "ninfer.ops.linear.roof"})
_SIDE: Final = {"cuda": 8192, "cpu": 512}
_COPIED: Final = 1 << 26
_READ: Final = 1 << 31


def weight_bytes(weights: TextWeights, text: TextConfig, tokens: int) -> float:
    """Bytes of weights that a step of so many tokens reads: of experts those that it meets.

    Tokens choose experts independently, so 1 - (1 - k / E)^tokens of them are met.
    """
    met = 1.0
    if text.moe is not None:
        met = 1 - (1 - text.moe.top_k / text.moe.experts) ** tokens

    def of(value: Any) -> float:
        if isinstance(value, SparseMoeWeights):
            routed = of(value.experts)
            return met * routed + of(value.shared) + of(value.router)
        return _bytes(value, of)

    return of(weights.layers) + of(weights.head)


def _bytes(value: Any, of: Callable[[Any], float]) -> float:
    if isinstance(value, Tensor) or hasattr(value, "nbytes"):
        return float(value.nbytes)
    if isinstance(value, tuple):
        return sum(map(of, value))
    if is_dataclass(value) and not isinstance(value, type):
        return sum(of(getattr(value, field.name)) for field in fields(value))
    return 0.0


def cache_bytes(caches: Caches, text: TextConfig, context: int, sequences: int) -> float:
    """Bytes of keys and values that are read, and of recurrent states, read and written."""
    sizes = text.attention
    read = 0.0
    for cache in caches.attention.values():
        form = kv_format(cache.format)
        read += context * form.bytes_per_token(sizes.kv_heads, sizes.head_dim)
    states = sum(2 * state.delta.matrix[0].nbytes for state in caches.gdn.values())
    return sequences * (read + states)


def memory_rate(device: torch.device) -> float:
    """Bytes per second that memory gives: on a card to a kernel that only reads, else to a copy."""
    if device.type == "cuda":
        source = torch.zeros(_READ, dtype=torch.uint8, device=device)
        sink = torch.zeros(1, dtype=torch.int32, device=device)
        read_all = _on_card("read_all")
        return _READ / replayed([lambda: read_all(source, sink)]).median
    source = torch.zeros(_COPIED, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2 * _COPIED / measure(lambda: target.copy_(source)).median


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of a large square product, by torch."""
    side = _SIDE[device.type]
    a, b = (torch.ones((side, side), dtype=dtype, device=device) for _ in range(2))
    time = replayed if device.type == "cuda" else _measured
    return 2.0 * side**3 / time([lambda: a @ b]).median


def _measured(calls: Sequence[Callable[[], object]]) -> Timing:
    (call,) = calls
    return measure(call)


def operations(weights: TextWeights, text: TextConfig) -> float:
    """Operations of products that one token of a prompt costs, attention and head left out."""
    share = 1.0 if text.moe is None else text.moe.top_k / text.moe.experts

    def of(value: Any) -> float:
        if isinstance(value, SparseMoeWeights):
            return share * of(value.experts) + of(value.shared) + of(value.router)
        if isinstance(value, Tensor) or hasattr(value, "nbytes"):
            shape = value.shape
            return 2.0 * shape[0] * shape[1] if len(shape) == 2 else 0.0
        return _bytes(value, of)

    return of(weights.layers)
