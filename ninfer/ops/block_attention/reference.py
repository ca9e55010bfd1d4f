"""Block attention in plain torch: join a sequence's visible context with its block, then attend."""

import torch
from torch import Tensor

from ninfer.ops.kv_cache.reference import read_pages
from ninfer.ops.precision import wide
from ninfer.ops.tensors import PagedKV, RaggedRows


def block_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    cache: PagedKV,
    rows: RaggedRows,
    *,
    window: int | None,
    scale: float,
) -> Tensor:
    """See the contract."""
    dtype = wide(q)
    out = q.new_empty(q.shape)
    lengths: list[int] = rows.kv_lengths.tolist()
    for sequence, (start, stop) in enumerate(rows.spans()):
        if start == stop:
            continue
        context = lengths[sequence] - (stop - start)
        past = _visible_context(cache, rows.page_table[sequence], context, window)
        block_keys, block_values = keys[start:stop].to(dtype), values[start:stop].to(dtype)
        joined = (
            torch.cat((past[0].to(dtype), block_keys)),  # [S, Hkv, D]
            torch.cat((past[1].to(dtype), block_values)),
        )
        out[start:stop] = _attend(q[start:stop].to(dtype), *joined, window, scale)
    return out


def _visible_context(
    cache: PagedKV, table: Tensor, context: int, window: int | None
) -> tuple[Tensor, Tensor]:
    """Keys and values of the context from the first page that the first row's window reaches."""
    size = cache.page_size
    first = 0 if window is None else max(context - window + 1, 0) // size
    pages = table[first : -(-context // size)]
    return read_pages(cache, pages, context - first * size)


def _attend(q: Tensor, keys: Tensor, values: Tensor, window: int | None, scale: float) -> Tensor:
    """Rows [n, Hq, D] at the last n of S positions against [S, Hkv, D], n of them their own."""
    count, heads, dim = q.shape
    length, shared, _ = keys.shape
    grouped = q.view(count, shared, -1, dim).permute(1, 2, 0, 3)  # [Hkv, Hq / Hkv, n, D]
    scores = torch.bmm(grouped.reshape(shared, -1, dim), keys.permute(1, 2, 0)).mul_(scale)
    scores = scores.view(shared, -1, count, length)
    if window is not None:
        position = torch.arange(length, device=q.device)
        distance = (position[-count:].unsqueeze(1) - position).abs()  # [n, S]
        scores.masked_fill_(distance >= window, float("-inf"))
    weights = scores.softmax(-1).view(shared, -1, length)
    mixed = torch.bmm(weights, values.transpose(0, 1)).view(shared, -1, count, dim)
    return mixed.permute(2, 0, 1, 3).reshape(count, heads, dim)
