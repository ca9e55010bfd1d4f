"""The CUDA form of paged attention for few rows: what it serves, its sizes and its two launches.

Calls can be captured into CUDA graphs once `ready` has run for their cache: lengths, offsets and
pages are read on the device. On Hopper and later both kernels are programmatic dependent launches.
"""

import struct
from math import ceil, log
from typing import Final

import torch
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.ops.attention.fast_plan import (
    CUTS,
    DIM,
    FORMS,
    JOIN_PARTS,
    MOST_ROWS,
    MOST_TILES,
    PAGE,
    THREADS,
    AttendPlan,
    attend_plan,
)
from ninfer.ops.attention.plan import MOST_PARTIAL_BYTES
from ninfer.ops.linear.compiler import Program
from ninfer.ops.linear.launcher import Kernel, Launch, architecture, kernel, start
from ninfer.ops.tensors import PagedKV, RaggedRows

_LOG2_E: Final = 1 / log(2)
# Heads of a cache whose FP8 scales can be copied together.
_FP8_HEADS: Final = (2, 4, 8)


def serves(q: Tensor, cache: PagedKV, rows: RaggedRows) -> bool:
    """Whether this form computes the call: else another tier has to."""
    heads = cache.keys.shape[2]
    return (
        q.dtype is torch.bfloat16
        and q.device.type == "cuda"
        and cache.format in FORMS
        and q.shape[2] == DIM
        and cache.page_size == PAGE
        and q.shape[0] <= MOST_ROWS
        and rows.kv_lengths.shape[0] <= MOST_ROWS
        and (cache.format != "fp8" or heads in _FP8_HEADS)
        and 4 * q.numel() * _capacity(rows) <= MOST_PARTIAL_BYTES
    )


def paged_attention(q: Tensor, cache: PagedKV, rows: RaggedRows, *, scale: float) -> Tensor:
    """See the contract. Raises UnsupportedError for a call that this form does not serve."""
    if not serves(q, cache, rows):
        raise UnsupportedError(
            f"paged_attention: the CUDA form takes up to {MOST_ROWS} bfloat16 rows of {DIM} "
            f"columns on a card and pages of {PAGE} keys, got {list(q.shape)} of {q.dtype} on "
            f"{q.device}, {cache.format} pages of {cache.page_size}"
        )
    number = architecture(_index(q))
    group = q.shape[1] // cache.keys.shape[2]
    most = ceil(q.shape[0] / max(rows.kv_lengths.shape[0], 1)) * group
    return attend(q, cache, rows, scale, _plan(number, cache, group, most))


def ready(cache: PagedKV, query_heads: int) -> None:
    """Build and load all that calls over this cache start, so that they compile nothing."""
    device, group = _index(cache.keys), query_heads // cache.keys.shape[2]
    for tiles in range(1, MOST_TILES + 1):
        for program in programs(
            architecture(device), _plan(architecture(device), cache, group, 8 * tiles)
        ):
            _loaded(device, program)


def programs(number: int, plan: AttendPlan) -> list[Program]:
    """What a call with these sizes starts on an architecture."""
    return [
        Program.of("attention/attend.cu", number, plan.defines),
        Program.of("attention/join.cu", number, plan.join_defines),
    ]


def attend(q: Tensor, cache: PagedKV, rows: RaggedRows, scale: float, plan: AttendPlan) -> Tensor:
    """The call with these sizes, which must be those of its cache and heads."""
    device = _index(q)
    attending, joining = (_loaded(device, each) for each in programs(architecture(device), plan))
    count, heads, _ = q.shape
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not count:
        return out
    capacity = _capacity(rows, plan)
    partial = torch.empty((count, heads, capacity, DIM), dtype=torch.float32, device=q.device)
    parts = torch.empty((count, heads, capacity, 2), dtype=torch.float32, device=q.device)
    q = q if _aligned(q) else q.contiguous()
    sequences = rows.kv_lengths.shape[0]
    caches = (cache.keys, cache.values, cache.key_scales, cache.value_scales)
    lengths = (rows.offsets, rows.kv_lengths)
    addresses = _addresses(q, *caches, *lengths, rows.page_table, partial, parts)
    (bits,) = struct.unpack("<i", struct.pack("<f", scale * _LOG2_E))
    sizes = (*q.stride()[:2], rows.page_table.stride(0), sequences, capacity, bits)
    row_tiles = count * plan.group // plan.rows + sequences
    most = min(plan.blocks * attending.multiprocessors, row_tiles * plan.heads * capacity)
    start(attending, Launch(most, THREADS, plan.shared_bytes), addresses, sizes)
    addresses = _addresses(partial, parts, *lengths, out)
    how = Launch(count * heads * JOIN_PARTS, 32 * plan.join_warps, plan.join_shared_bytes)
    start(joining, how, addresses, (sequences, capacity))
    return out


def _capacity(rows: RaggedRows, plan: AttendPlan | None = None) -> int:
    """Splits that a row can have, by the width of the page table."""
    return (plan.cuts if plan else CUTS).splits(max(rows.page_table.shape[1], 1) * PAGE)


def _plan(number: int, cache: PagedKV, group: int, rows: int) -> AttendPlan:
    return attend_plan(number, cache.format, cache.keys.shape[2], group, rows)


def _loaded(device: int, program: Program) -> Kernel:
    name = "join_splits" if program.source == "attention/join.cu" else "attend_splits"
    return kernel(device, program.source, name, program.defines)


def _addresses(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def _aligned(q: Tensor) -> bool:
    """Whether four columns can be read at once."""
    return (
        q.stride(2) == 1
        and not any(x % 4 for x in (q.stride(0), q.stride(1)))
        and (q.data_ptr() % 8 == 0)
    )


def _index(x: Tensor) -> int:
    return torch.cuda.current_device() if x.device.index is None else x.device.index
