"""Contract of bidirectional attention inside a block of rows that follows a paged context."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.block_attention import reference
from ninfer.ops.dispatch import Route
from ninfer.ops.tensors import PagedKV, RaggedRows

_BLOCK_ATTENTION: Final = Route(reference.block_attention)


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
    """softmax(scale * q K^T) V of each row over the cached context and the whole block.

    The n rows of a sequence are its block, at positions kv_length - n to kv_length - 1. Their keys
    and values are `keys` and `values`, not in the cache; the cache holds the kv_length - n
    positions before. A row at position p sees every position of context and block, earlier or
    later, at a distance below `window` (None: at any distance). Query head h reads KV head
    h // (Hq / Hkv). Scores and softmax are float32.
    Shapes: q [T, Hq, D], keys and values [T, Hkv, D] of the type of q, cache pages
    [.., .., Hkv, D] -> [T, Hq, D] in the type of q.
    Domain: kv_length >= n for each sequence. Pages that end before the window of the block's
    first row are not read; all later pages of the context are in the table.
    Raises ValueError for shapes that disagree, when Hkv does not divide Hq, and for a window
    below 1.
    """
    op = "block_attention"
    checks.activation(op, "q", q, 3)
    checks.activation(op, "keys", keys, 3)
    if keys.dtype is not q.dtype:
        raise checks.wrong(op, "keys", keys.dtype, str(q.dtype))
    checks.shaped(op, "keys", keys, (q.shape[0], keys.shape[1], q.shape[2]), q)
    checks.twin(op, "values", values, keys)
    checks.paged_kv(op, cache, keys.shape[1], q.shape[2], q)
    checks.ragged(op, rows, q)
    if q.shape[1] % keys.shape[1]:
        seen, wanted = f"of {q.shape[1]} heads", f"of a multiple of {keys.shape[1]} heads"
        raise checks.wrong(op, "q", seen, wanted)
    if window is not None and window < 1:
        raise checks.wrong(op, "window", window, "None or at least 1")
    return _BLOCK_ATTENTION.run(q, keys, values, cache, rows, window=window, scale=scale)
