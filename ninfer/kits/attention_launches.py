"""What the attention kernels of a model are launched with, on caches without memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import torch
from torch import Tensor

from ninfer import ops
from ninfer.formats.kv import word_dtype
from ninfer.formats.registry import kv_format
from ninfer.models.config import AttentionSizes, Dflash2Config, DflashConfig, ModelConfig
from ninfer.ops.tensors import PagedKV, RaggedRows

Call = Callable[[], object]

# `fp32` is for checks on a processor; its products run without the matrix instruction.
FORMATS: Final = ("bf16", "int8", "fp8", "int4")
_META: Final = torch.device("meta")
# Pages that a table has: one page keeps all keys in one split, so it takes the other route.
_FEW_PAGES: Final = 1
# Enough for splits, and few enough that those of 64 rows fit in memory.
_PAGES: Final = 256
# Rows of one sequence that make the smallest tiles; longer calls come from the caller.
_SHORT: Final = (1, 2)
_SEQUENCES: Final = 64


def attention_calls(config: ModelConfig, tokens: Sequence[int]) -> Iterator[Call]:
    """Calls that between them launch every attention and cache kernel of a model, in bf16.

    `tokens` are rows of one sequence; 1, 2 and 64 sequences of one row come in addition.
    """
    text = config.text.attention
    drafters = [drafter for drafter in (config.dflash, config.dflash2) if drafter is not None]
    for form in FORMATS:
        yield from _paged(form, text, sorted({*_SHORT, *tokens}))
        for drafter in drafters:
            yield from _block(form, drafter, sorted({*_SHORT, *tokens}))
    if config.vision is not None:
        heads = config.vision.heads
        q, k, v = (_rows(64, heads, config.vision.hidden // heads) for _ in range(3))
        yield partial(ops.slice_attention, q, k, v, length=64, scale=1.0)


def _paged(form: str, sizes: AttentionSizes, tokens: Iterable[int]) -> Iterator[Call]:
    cache = _cache(form, sizes.kv_heads, sizes.head_dim)
    key, value = (_rows(1, sizes.kv_heads, sizes.head_dim) for _ in range(2))
    yield partial(ops.write_kv, key, value, cache, _indices(1))
    for count, rows in _batches(tokens):
        q = _rows(count, sizes.query_heads, sizes.head_dim)
        yield partial(ops.paged_attention, q, cache, rows, scale=sizes.scale)


def _block(
    form: str, drafter: DflashConfig | Dflash2Config, tokens: Iterable[int]
) -> Iterator[Call]:
    cache = _cache(form, drafter.kv_heads, drafter.head_dim)
    key, value = (_rows(1, drafter.kv_heads, drafter.head_dim) for _ in range(2))
    yield partial(ops.write_kv, key, value, cache, _indices(1))
    for count, rows in _batches(tokens):
        q = _rows(count, drafter.query_heads, drafter.head_dim)
        keys, values = (_rows(count, drafter.kv_heads, drafter.head_dim) for _ in range(2))
        for window in (None, drafter.window):
            call = partial(ops.block_attention, q, keys, values, cache, rows)
            yield partial(call, window=window, scale=1.0)


def _batches(tokens: Iterable[int]) -> Iterator[tuple[int, RaggedRows]]:
    for count in tokens:
        for pages in (_FEW_PAGES, _PAGES):
            yield count, _ragged(1, pages)
    for pages in (_FEW_PAGES, _PAGES):
        yield _SEQUENCES, _ragged(_SEQUENCES, pages)


def _rows(count: int, heads: int, dim: int) -> Tensor:
    return torch.empty(count, heads, dim, dtype=torch.bfloat16, device=_META)


def _indices(*shape: int) -> Tensor:
    return torch.empty(*shape, dtype=torch.int64, device=_META)


def _ragged(sequences: int, pages: int) -> RaggedRows:
    table = _indices(sequences, pages)
    return RaggedRows(_indices(sequences + 1), _indices(sequences), table, _indices(sequences))


def _cache(form: str, heads: int, dim: int) -> PagedKV:
    groups, words = kv_format(form).scale_groups(dim), kv_format(form).words(dim)
    shape = (_PAGES, 64, heads)
    keys, values = (
        torch.empty(*shape, words, dtype=word_dtype(form), device=_META) for _ in range(2)
    )
    if not groups:
        return PagedKV(form, keys, values)
    scales = (torch.empty(*shape, groups, dtype=torch.float16, device=_META) for _ in range(2))
    return PagedKV(form, keys, values, *scales)
