"""Contract of the KV cache: write rows in a KV number format and read them back."""

from typing import Final

from torch import Tensor

from ninfer.ops import checks
from ninfer.ops.dispatch import Route
from ninfer.ops.kv_cache import reference
from ninfer.ops.tensors import PagedKV

_WRITE_KV: Final = Route(reference.write_kv)
_READ_KV: Final = Route(reference.read_kv)


def write_kv(keys: Tensor, values: Tensor, cache: PagedKV, slots: Tensor) -> None:
    """Store keys[t] and values[t] in the cache row slots[t], encoded in the cache's format.

    A slot is page * page_size + row. Shapes: keys and values [T, H, D] of one type, slots [T]
    int64, all different. Effect: those rows of `cache`, and nothing else, are overwritten.
    Raises ValueError for shapes that disagree and for inputs that lie in the cache's memory.
    """
    checks.activation("write_kv", "keys", keys, 3)
    checks.twin("write_kv", "values", values, keys)
    checks.paged_kv("write_kv", cache, keys.shape[1], keys.shape[2], keys)
    checks.indices("write_kv", "slots", slots, (keys.shape[0],), keys)
    for pages in (cache.keys, cache.values):
        checks.apart("write_kv", "cache", pages, keys)
        checks.apart("write_kv", "cache", pages, values)
    _WRITE_KV.run(keys, values, cache, slots)


def read_kv(cache: PagedKV, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Decoded keys and values of the cache rows `slots`, the values that attention sees.

    Shapes: slots [T] int64 -> two [T, H, D] float32. Raises ValueError for a malformed cache.
    """
    checks.paged_kv("read_kv", cache, None, cache.head_dim, slots)
    checks.indices("read_kv", "slots", slots, (slots.numel(),), slots)
    return _READ_KV.run(cache, slots)
