"""Paged attention in plain torch: gather a sequence's pages, then attend in blocks of queries."""

import torch
from torch import Tensor

from ninfer.ops.kv_cache.reference import read_pages
from ninfer.ops.precision import wide
from ninfer.ops.tensors import PagedKV, RaggedRows

# Scores held at once: 64 MiB of float32.
_SCORES = 1 << 24


def paged_attention(q: Tensor, cache: PagedKV, rows: RaggedRows, *, scale: float) -> Tensor:
    """See the contract."""
    dtype = wide(q)
    out = q.new_empty(q.shape)
    lengths: list[int] = rows.kv_lengths.tolist()
    for sequence, (start, stop) in enumerate(rows.spans()):
        if start == stop:
            continue
        length = lengths[sequence]
        pages = rows.page_table[sequence, : -(-length // cache.page_size)]
        keys, values = read_pages(cache, pages, length)
        out[start:stop] = _attend(
            q[start:stop].to(dtype), keys.to(dtype), values.to(dtype), length, scale
        )
    return out


def _attend(q: Tensor, keys: Tensor, values: Tensor, length: int, scale: float) -> Tensor:
    """Rows [n, Hq, D] at the last n of `length` positions against [length, Hkv, D]."""
    count, heads, _ = q.shape
    keys = keys.permute(1, 2, 0)  # [Hkv, D, length]
    values = values.transpose(0, 1)  # [Hkv, length, D]
    step = max(_SCORES // (heads * length), 1)
    first = length - count
    blocks = [
        _attend_block(q[i : i + step], keys, values, first + i, scale)
        for i in range(0, count, step)
    ]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks)


def _attend_block(q: Tensor, keys: Tensor, values: Tensor, first: int, scale: float) -> Tensor:
    """Rows [n, Hq, D] at positions first..first + n - 1."""
    count, heads, dim = q.shape
    shared, end = keys.shape[0], first + count
    grouped = q.view(count, shared, -1, dim).permute(1, 2, 0, 3)  # [Hkv, Hq / Hkv, n, D]
    scores = torch.bmm(grouped.reshape(shared, -1, dim), keys[..., :end]).mul_(scale)
    scores = scores.view(shared, -1, count, end)
    if count > 1:
        unseen = torch.ones(count, count, dtype=torch.bool, device=q.device).triu(1)
        scores[..., first:].masked_fill_(unseen, float("-inf"))
    weights = scores.softmax(-1).view(shared, -1, end)
    mixed = torch.bmm(weights, values[:, :end]).view(shared, -1, count, dim)
    return mixed.permute(2, 0, 1, 3).reshape(count, heads, dim)
