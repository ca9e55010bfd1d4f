"""Block attention by the Triton kernels of paged attention, with the block behind the context."""

from torch import Tensor

from ninfer.ops.attention.portable import Block, attend
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
    return attend("block_attention", q, cache, rows, scale, Block(keys, values, window or 0))
