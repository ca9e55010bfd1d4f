"""Calls of the ops between the products: norms, rotation and gates at the widths of a model."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import torch
from torch import Tensor

from ninfer import ops
from ninfer.models.config import TextConfig

_META: Final = torch.device("meta")


def row_calls(text: TextConfig, count: int) -> Iterator[Callable[[], object]]:
    """One call of each op and width for `count` rows in bf16, on tensors without memory.

    Heads are views of wider rows, as the fused projections leave them.
    """
    attention, gdn = text.attention, text.gdn
    hidden = _rows(count, text.hidden)
    weight = _rows(text.hidden)
    for offset in (True, False):
        yield partial(ops.rmsnorm, hidden, weight, eps=text.eps, unit_offset=offset)
        yield partial(ops.add_rmsnorm, hidden, hidden, weight, eps=text.eps, unit_offset=offset)
    positions = torch.empty(3, count, dtype=torch.int64, device=_META)
    turn = partial(
        ops.mrope,
        positions=positions,
        theta=attention.rope_theta,
        rotary_dim=attention.rotary_dim,
        factor=attention.rope_factor,
        native=attention.native,
    )
    for heads in (attention.query_heads, attention.kv_heads):
        fused = _heads(count, heads, attention.head_dim)
        norm = _rows(attention.head_dim)
        yield partial(ops.rmsnorm, fused, norm, eps=text.eps, unit_offset=True)
        yield partial(turn, _rows(count, heads, attention.head_dim))
    wide = _rows(count, 2 * attention.query_width)
    gate = wide[:, attention.query_width :]
    yield partial(ops.sigmoid_mul, _rows(count, attention.query_width), gate)
    yield partial(ops.l2norm, _heads(count, gdn.key_heads, gdn.key_dim), eps=text.eps)
    values = _rows(count, gdn.value_heads, gdn.value_dim)
    fused = _heads(count, gdn.value_heads, gdn.value_dim)
    yield partial(ops.gated_rmsnorm, values, fused, _rows(gdn.value_dim), eps=text.eps)


def _rows(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device=_META)


def _heads(count: int, heads: int, width: int) -> Tensor:
    """Heads [count, heads, width] that are half of each row."""
    fused = _rows(count, 2 * heads * width)
    return fused.as_strided((count, heads, width), (fused.stride(0), width, 1))
