"""Paged attention in plain torch: gather a sequence's pages, then attend in blocks of queries."""

from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from ninfer.ops.exact import with_rows
from ninfer.ops.kv_cache.reference import read_pages
from ninfer.ops.precision import wide
from ninfer.ops.tensors import PagedKV, RaggedRows

# Scores held at once: 64 MiB of float32.
_SCORES = 1 << 24
# Keys whose products and sums are taken together. A fixed length and not a fixed count: the
# result of a row must not depend on how long its sequence is, or on the rows beside it.
SPLIT: Final = 256


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
        keys, values = (x.to(dtype) for x in read_pages(cache, pages, length))
        first = length - (stop - start)
        for count in _pieces(keys[first:], values[first:]):
            seen, part = first + count, slice(start, start + count)
            out[part] = _attend(
                q[part].to(dtype), _splits(keys[:seen]), _splits(values[:seen]), seen, scale
            )
            start, first = part.stop, seen
    return out


def _pieces(keys: Tensor, values: Tensor) -> list[int]:
    """Lengths in which new rows [n, H, D] are taken so that none meets NaN or infinity behind it.

    A weight of zero times such a value is NaN: a wrong draft must not spoil the row before it. Rows
    from the first bad one on see it anyway.
    """
    count = keys.shape[0]
    good = (torch.isfinite(keys) & torch.isfinite(values)).flatten(1).all(1)
    whole = int(good.to(torch.int64).cumprod(0).sum()) if count > 1 else 0
    return [count] if whole in (0, count) else [whole, count - whole]


def _splits(rows: Tensor) -> Tensor:
    """[length, H, D] as [splits, H, SPLIT, D], zeros behind the last row."""
    padded = pad(rows, (0, 0, 0, 0, 0, -rows.shape[0] % SPLIT))
    return padded.view(-1, SPLIT, *rows.shape[1:]).transpose(1, 2)


def _attend(q: Tensor, keys: Tensor, values: Tensor, length: int, scale: float) -> Tensor:
    """Rows [n, Hq, D] at the last n of `length` positions against [splits, Hkv, SPLIT, D]."""
    count, heads, _ = q.shape
    step = max(_SCORES // (heads * keys.shape[0] * SPLIT), 1)
    first = length - count
    blocks = [
        _attend_block(q[i : i + step], keys, values, first + i, scale)
        for i in range(0, count, step)
    ]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks)


def _attend_block(q: Tensor, keys: Tensor, values: Tensor, first: int, scale: float) -> Tensor:
    """Rows [n, Hq, D] at positions first..first + n - 1."""
    count, heads, dim = q.shape
    shared, splits = keys.shape[1], -(-(first + count) // SPLIT)
    grouped = q.view(count, shared, -1, dim).transpose(0, 1)  # [Hkv, n, Hq / Hkv, D]
    group = grouped.shape[2]
    queries = with_rows(grouped.reshape(shared, -1, dim))  # [Hkv, R, D]
    scores = torch.stack([torch.bmm(queries, part.transpose(1, 2)) for part in keys[:splits]], 2)
    scores = scores.mul_(scale).flatten(2)  # [Hkv, R, splits * SPLIT]
    hidden = _hidden(count, first, splits * SPLIT, q.device).repeat_interleave(
        group, 0
    )  # [n G, ..]
    scores[:, : count * group].masked_fill_(hidden, float("-inf"))
    scores = torch.exp_(scores.sub_(scores.amax(-1, keepdim=True)))
    weights = scores.view(*scores.shape[:2], splits, SPLIT)
    total, mixed = weights[:, :, 0].sum(-1), torch.bmm(weights[:, :, 0], values[0])
    for index in range(1, splits):
        total = total + weights[:, :, index].sum(-1)
        mixed = mixed + torch.bmm(weights[:, :, index], values[index])
    mixed = (mixed / total.unsqueeze(-1))[:, : count * group]
    return mixed.reshape(shared, count, -1).transpose(0, 1).reshape(count, heads, dim)


def _hidden(count: int, first: int, width: int, device: torch.device) -> Tensor:
    """[n, width]: whether the key at a position comes after the row's own."""
    own = torch.arange(first, first + count, device=device).unsqueeze(1)
    return torch.arange(width, device=device) > own
