"""KV cache rows in plain torch: encode and scatter, gather and decode."""

from torch import Tensor

from ninfer.formats import kv
from ninfer.ops.tensors import PagedKV


def write_kv(keys: Tensor, values: Tensor, cache: PagedKV, slots: Tensor) -> None:
    """See the contract."""
    _write(cache.format, keys, cache.keys, cache.key_scales, slots)
    _write(cache.format, values, cache.values, cache.value_scales, slots)


def read_kv(cache: PagedKV, slots: Tensor) -> tuple[Tensor, Tensor]:
    """See the contract."""
    return (
        _read(cache.format, cache.keys.flatten(0, 1), _by_row(cache.key_scales), slots),
        _read(cache.format, cache.values.flatten(0, 1), _by_row(cache.value_scales), slots),
    )


def read_pages(cache: PagedKV, pages: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Decoded keys and values [length, H, D] float32 of a sequence that lies in `pages`."""
    return (
        _read(cache.format, cache.keys, cache.key_scales, pages).flatten(0, 1)[:length],
        _read(cache.format, cache.values, cache.value_scales, pages).flatten(0, 1)[:length],
    )


def _by_row(scales: Tensor | None) -> Tensor | None:
    return None if scales is None else scales.flatten(0, 1)


def _read(form: str, words: Tensor, scales: Tensor | None, index: Tensor) -> Tensor:
    # Faster on a CPU than words[index], and an index of -1 is an error.
    factors = None if scales is None else scales.index_select(0, index)
    return kv.decode(form, words.index_select(0, index), factors)


def _write(form: str, rows: Tensor, pages: Tensor, scales: Tensor | None, slots: Tensor) -> None:
    words, factors = kv.encode(form, rows)
    pages.flatten(0, 1).index_copy_(0, slots, words)
    if scales is not None:
        assert factors is not None, form
        scales.flatten(0, 1).index_copy_(0, slots, factors)
