"""Contract of causal grouped-query attention over paged keys and values."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.attention import reference
from ninfer.ops.dispatch import Route
from ninfer.ops.tensors import PagedKV, RaggedRows

_PAGED_ATTENTION: Final = Route(reference.paged_attention)


def paged_attention(q: Tensor, cache: PagedKV, rows: RaggedRows, *, scale: float) -> Tensor:
    """softmax(scale * q K^T) V of each row over the keys up to its own position.

    Row i of the n rows of a sequence sits at position p = kv_length - n + i and sees keys 0..p of
    that sequence, its own included: they must be in the cache already. Query head h reads KV head
    h // (Hq / Hkv). Scores and softmax are float32. Later keys and values have no effect on a row,
    not even when they are NaN or infinite, unless one at its own position or before it is.
    Shapes: q [T, Hq, D], cache pages [.., .., Hkv, D] -> [T, Hq, D] in the type of q.
    Domain: kv_length >= n for each sequence, and its pages are in the table.
    Raises ValueError for shapes that disagree and when Hkv does not divide Hq.
    """
    checks.activation("paged_attention", "q", q, 3)
    checks.paged_kv("paged_attention", cache, None, q.shape[2], q)
    checks.ragged("paged_attention", rows, q)
    if q.shape[1] % cache.keys.shape[2]:
        wanted = f"of a multiple of {cache.keys.shape[2]} heads"
        raise checks.wrong("paged_attention", "q", f"of {q.shape[1]} heads", wanted)
    return _PAGED_ATTENTION.run(q, cache, rows, scale=scale)
