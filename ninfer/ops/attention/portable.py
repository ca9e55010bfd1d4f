"""Paged attention by Triton kernels: whole rows, or splits of the keys beside each other."""

from dataclasses import dataclass
from math import log
from typing import Any, Final

import torch
import triton.language as tl
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.formats.kv import kv_format
from ninfer.ops.attention import kernels, tiles
from ninfer.ops.attention.plan import (
    FEW,
    MOST_PARTIAL_BYTES,
    Sizes,
    few_rows,
    head,
    programs,
    sizes,
)
from ninfer.ops.launch import INTERPRETED, architecture, launch
from ninfer.ops.tensors import PagedKV, RaggedRows

_TYPES: Final = (torch.bfloat16, torch.float16, torch.float32)
_WORDS: Final = {2: torch.int32, 4: torch.int64}
# Columns of a head that one program of the second kernel adds up, and splits that it loads ahead.
_JOINED_COLUMNS: Final = 64
_UNROLL: Final = 16
# The interpreter runs programs one by one: enough of them that each takes several splits.
_INTERPRETED_PROGRAMS: Final = 3
# Sequences that a kernel is compiled for.
_SEQUENCES: Final = (16, 64, 256, 1024, 4096)
_LOG2_E: Final = 1 / log(2)


@dataclass(frozen=True, slots=True)
class Block:
    """Keys and values [T, Hkv, D] of rows that see each other, and their window (0: none)."""

    keys: Tensor
    values: Tensor
    window: int


def paged_attention(q: Tensor, cache: PagedKV, rows: RaggedRows, *, scale: float) -> Tensor:
    """See the contract."""
    return attend("paged_attention", q, cache, rows, scale)


def attend(
    op: str, q: Tensor, cache: PagedKV, rows: RaggedRows, scale: float, block: Block | None = None
) -> Tensor:
    """Attention over a paged context and, given a block, over the block itself.

    Few rows run with their splits side by side where these fit in memory, all others by whole rows;
    the bits are the same.
    """
    if q.dtype not in _TYPES:
        raise UnsupportedError(f"{op}: no Triton kernel for activations of {q.dtype}; use bf16")
    if rows.kv_lengths.shape[0] > _SEQUENCES[-1]:
        seen = rows.kv_lengths.shape[0]
        raise UnsupportedError(f"{op}: no kernel for {seen} sequences; at most {_SEQUENCES[-1]}")
    if kv_format(cache.format).word_bytes == 1 and q.shape[2] % 4:
        raise UnsupportedError(
            f"{op}: no Triton kernel for {cache.format} heads of {q.shape[2]}; use kv format bf16"
        )
    # The interpreter cuts float32 down to bf16 where a card rounds.
    made = torch.float32 if INTERPRETED and q.dtype is torch.bfloat16 else q.dtype
    out = torch.empty(q.shape, dtype=made, device=q.device)
    if not out.numel():
        return out.to(q.dtype)
    wide = INTERPRETED or q.dtype is not torch.bfloat16 or cache.format == "fp32"
    chosen = sizes(architecture(q), cache.format, q.shape[2], wide=wide)
    capacity = _most_splits(cache, rows, chosen, block)
    partial_bytes = 4 * q.numel() * capacity
    if q.shape[0] > FEW or capacity == 1 or partial_bytes > MOST_PARTIAL_BYTES:
        _whole_rows(q, cache, rows, scale, block, out, chosen, wide)
    else:
        _splits(q, cache, rows, scale, block, out, chosen, wide, capacity)
    return out.to(q.dtype)


def _most_splits(cache: PagedKV, rows: RaggedRows, chosen: Sizes, block: Block | None) -> int:
    """Splits that a row can have, by the width of the page table."""
    keys = rows.page_table.shape[1] * cache.page_size
    if block is None:
        return max(-(-keys // chosen.split), 1)
    most = keys // chosen.split + 1
    return min(most, block.window // chosen.split + 2) if block.window else most


def _whole_rows(
    q: Tensor,
    cache: PagedKV,
    rows: RaggedRows,
    scale: float,
    block: Block | None,
    out: Tensor,
    chosen: Sizes,
    wide: bool,
) -> None:
    count, sequences = q.shape[0], rows.kv_lengths.shape[0]
    group = q.shape[1] // cache.keys.shape[2]
    tile = few_rows(count, sequences, group) if count <= FEW else chosen.rows
    warps = chosen.warps if count <= FEW else chosen.many_warps
    stages = chosen.stages if count <= FEW else chosen.many_stages
    grid = (count * group // tile + sequences, cache.keys.shape[2])
    inputs = _inputs(q, cache, rows, block)
    numbers = _numbers(q, rows, scale, block)
    options = _options(q, cache, rows, block, chosen, wide, stages)
    launch(kernels.attend_rows, grid, *inputs, out, *numbers, **options, R=tile, num_warps=warps)


def _splits(
    q: Tensor,
    cache: PagedKV,
    rows: RaggedRows,
    scale: float,
    block: Block | None,
    out: Tensor,
    chosen: Sizes,
    wide: bool,
    capacity: int,
) -> None:
    (count, heads, dim), sequences = q.shape, rows.kv_lengths.shape[0]
    shared = cache.keys.shape[2]
    tile = few_rows(count, sequences, heads // shared)
    partial = torch.empty((count, heads, capacity, dim), dtype=torch.float32, device=q.device)
    parts = torch.empty((count, heads, capacity, 2), dtype=torch.float32, device=q.device)
    most = (count * (heads // shared) // tile + sequences) * shared * capacity
    inputs = _inputs(q, cache, rows, block)
    options = _options(q, cache, rows, block, chosen, wide, chosen.stages)
    launch(
        kernels.attend_splits,
        (min(_INTERPRETED_PROGRAMS if INTERPRETED else programs(architecture(q), chosen), most),),
        *inputs,
        partial,
        parts,
        *_numbers(q, rows, scale, block),
        capacity,
        **options,
        R=tile,
        num_warps=chosen.warps,
    )
    columns = min(_JOINED_COLUMNS, options["W"])
    launch(
        kernels.join_splits,
        (count, heads, -(-dim // columns)),
        partial,
        parts,
        rows.offsets,
        rows.kv_lengths,
        out,
        block.window if block else 0,
        sequences,
        capacity,
        **{name: options[name] for name in ("BB", "SPLIT", "BN", "DIM", "BLOCK")},
        W=columns,
        UNROLL=_UNROLL,
        num_warps=1,
        enable_fp_fusion=False,
    )


def _inputs(q: Tensor, cache: PagedKV, rows: RaggedRows, block: Block | None) -> tuple[Tensor, ...]:
    """The tensors that both routes read."""
    scales = (
        _scale_words(x) if x is not None else cache.keys
        for x in (cache.key_scales, cache.value_scales)
    )
    own = (block.keys, block.values) if block else (q, q)
    offsets = (rows.offsets, rows.kv_lengths, rows.page_table)
    # Four codes a word.
    word = torch.int16 if cache.format == "int4" else torch.int32
    keys = cache.keys.view(word) if cache.keys.element_size() == 1 else cache.keys
    return (q, keys, cache.values, *scales, *own, *offsets)


def _scale_words(scales: Tensor) -> Tensor:
    """Scales [pages, rows, heads, groups], those of a head in one word where it holds them."""
    word = _WORDS.get(scales.shape[-1])
    return scales if word is None else scales.view(word)


def _numbers(
    q: Tensor, rows: RaggedRows, scale: float, block: Block | None
) -> tuple[int | float, ...]:
    """Scale in powers of two, window, strides and number of sequences."""
    own = (block.keys, block.values) if block else (q, q)
    strides = (stride for x in (q, *own) for stride in x.stride()[:2])
    window = block.window if block else 0
    sequences = rows.kv_lengths.shape[0]
    return (scale * _LOG2_E, window, *strides, rows.page_table.stride(0), sequences)


def _options(
    q: Tensor,
    cache: PagedKV,
    rows: RaggedRows,
    block: Block | None,
    chosen: Sizes,
    wide: bool,
    stages: int,
) -> dict[str, Any]:
    """What both routes are compiled for."""
    dim, entry = q.shape[2], kv_format(cache.format)
    shape = head(dim, entry.group, 64 if entry.word_bytes == 1 else 32)
    groups = entry.scale_groups(dim)
    return {
        "BB": next(size for size in _SEQUENCES if rows.kv_lengths.shape[0] <= size),
        "GROUP": q.shape[1] // cache.keys.shape[2],
        "SPLIT": chosen.split,
        "BN": chosen.keys,
        "DIM": dim,
        "W": shape.width,
        "CHUNKS": shape.chunks,
        "HEADS": cache.keys.shape[2],
        "PAGE": cache.page_size,
        "SCALED": entry.group,
        "SCALES": 1 if groups in _WORDS else groups,
        "PACKED": groups in _WORDS,
        "PARTS": 4 if entry.word_bytes == 1 else 1,
        "FORM": _form(cache.format, architecture(q)),
        "OPERAND": tl.float32 if wide else tl.bfloat16,
        "BLOCK": block is not None,
        "STAGES": stages,
        "num_stages": stages,
        "enable_fp_fusion": False,
    }


def _form(format: str, card: int) -> int:
    if format == "fp8":
        form = tiles.FP8 if INTERPRETED or card < 89 else tiles.FP8_NATIVE
    else:
        form = {"int8": tiles.INT8, "int4": tiles.INT4}.get(format, tiles.DIRECT)
    return int(form.value)
