"""Checks of op arguments: shape, number type, device, strides and aliasing, in one error style.

A wrong call is a bug of the caller inside the package, so each check raises ValueError with the
op, the argument and what was seen. Values on a device are never read: that would stall it.
"""

from typing import Final

import torch
from torch import Tensor

from ninfer.formats.registry import kv_format
from ninfer.ops.precision import wide
from ninfer.ops.tensors import ConvState, DeltaState, PagedKV, RaggedRows, Weight

_FLOATS = frozenset((torch.bfloat16, torch.float16, torch.float32, torch.float64))
# Held rows go one by one, so a window must not be able to fill a chunk of the delta rule.
MAX_WINDOW: Final = 63


def wrong(op: str, argument: str, seen: object, wanted: str) -> ValueError:
    """The error of every failed check."""
    return ValueError(f"{op}: {argument} is {seen}, must be {wanted}")


def activation(op: str, argument: str, x: Tensor, ndim: int | None = None) -> None:
    """A float tensor of `ndim` dimensions (any number >= 1 if None) with dense last dimension."""
    if x.dtype not in _FLOATS:
        raise wrong(op, argument, x.dtype, "a float tensor")
    if x.ndim != ndim and (ndim is not None or x.ndim == 0):
        raise wrong(op, argument, f"of shape {tuple(x.shape)}", f"of {ndim or '1 or more'} dims")
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        raise wrong(op, argument, f"of strides {x.stride()}", "of unit stride in its last dim")


def shaped(op: str, argument: str, x: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
    """A tensor of exactly `shape` on the device of `like`."""
    if x.shape != shape:
        raise wrong(op, argument, f"of shape {tuple(x.shape)}", f"of shape {tuple(shape)}")
    if x.device != like.device:
        raise wrong(op, argument, f"on {x.device}", f"on {like.device}")


def twin(op: str, argument: str, x: Tensor, like: Tensor) -> None:
    """A tensor of the shape, type and device of `like`, with dense last dimension."""
    if x.dtype is not like.dtype:
        raise wrong(op, argument, x.dtype, str(like.dtype))
    shaped(op, argument, x, like.shape, like)
    activation(op, argument, x, like.ndim)


def indices(op: str, argument: str, x: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
    """An int64 tensor of exactly `shape` on the device of `like`."""
    if x.dtype is not torch.int64:
        raise wrong(op, argument, x.dtype, "int64")
    shaped(op, argument, x, shape, like)


def weight_matrix(
    op: str, argument: str, weight: Weight, like: Tensor, *, rows: int | None = None, columns: int
) -> None:
    """A dense or packed matrix of the given logical size on the device of `like`."""
    if len(weight.shape) != 2 or weight.shape[1] != columns or rows not in (None, weight.shape[0]):
        wanted = f"of shape ({'N' if rows is None else rows}, {columns})"
        raise wrong(op, argument, f"of shape {tuple(weight.shape)}", wanted)
    if weight.device != like.device:
        raise wrong(op, argument, f"on {weight.device}", f"on {like.device}")


def ragged(op: str, rows: RaggedRows, like: Tensor) -> None:
    """Row offsets that agree in their sequence count, on the device of `like`.

    That the last offset is T, that slots differ and that pages exist is the owner's duty.
    """
    sequences = rows.offsets.shape[0] - 1
    if sequences < 0:
        raise wrong(op, "rows.offsets", "empty", "of B + 1 entries")
    indices(op, "rows.offsets", rows.offsets, (sequences + 1,), like)
    indices(op, "rows.kv_lengths", rows.kv_lengths, (sequences,), like)
    indices(op, "rows.state_slots", rows.state_slots, (sequences,), like)
    if rows.held is not None:
        if rows.held.dtype is not torch.bool:
            raise wrong(op, "rows.held", rows.held.dtype, "bool")
        shaped(op, "rows.held", rows.held, (sequences,), like)
    if rows.page_table.ndim != 2:
        raise wrong(op, "rows.page_table", f"of {rows.page_table.ndim} dims", "of 2 dims")
    indices(op, "rows.page_table", rows.page_table, (sequences, rows.page_table.shape[1]), like)


def state(op: str, argument: str, x: Tensor, tail: tuple[int, ...], source: Tensor) -> None:
    """A contiguous [S, *tail] tensor on the device of `source` that shares no memory with it."""
    if x.ndim != len(tail) + 1 or x.shape[1:] != tail:
        seen = f"of shape {tuple(x.shape)}"
        raise wrong(op, argument, seen, f"of shape (S, {', '.join(map(str, tail))})")
    if x.device != source.device:
        raise wrong(op, argument, f"on {x.device}", f"on {source.device}")
    if not x.is_contiguous():
        raise wrong(op, argument, f"of strides {x.stride()}", "contiguous")
    apart(op, argument, x, source)


def window(
    op: str, argument: str, x: Tensor, of: Tensor, tail: tuple[int, ...], source: Tensor
) -> None:
    """A state [S, H, *tail] of as many slots as `of`, for windows of H <= 63 rows."""
    rows = x.shape[1] if x.ndim > 1 else 0
    state(op, argument, x, (rows, *tail), source)
    if x.shape[0] != of.shape[0]:
        raise wrong(op, argument, f"of {x.shape[0]} slots", f"of {of.shape[0]} slots")
    if rows > MAX_WINDOW:
        raise wrong(op, argument, f"of {rows} rows", f"of at most {MAX_WINDOW} rows")


def conv_state(op: str, slots: ConvState, weight: tuple[int, int], x: Tensor) -> None:
    """Slots of a convolution of x whose weight has that shape (W, C)."""
    width, channels = weight
    for name, part in (("state.inputs", slots.inputs), ("state.window", slots.window)):
        if part.dtype is not x.dtype:
            raise wrong(op, name, part.dtype, str(x.dtype))
    state(op, "state.inputs", slots.inputs, (width - 1, channels), x)
    window(op, "state.window", slots.window, slots.inputs, (channels,), x)
    indices(op, "state.pending", slots.pending, slots.inputs.shape[:1], x)


def delta_state(op: str, slots: DeltaState, k: Tensor, v: Tensor) -> None:
    """Slots of a gated delta rule for k [T, Hk, Dk] and v [T, Hv, Dv] of one type."""
    dtype = wide(k)
    narrow = slots.matrix.dtype is torch.bfloat16 and dtype is torch.float32
    if slots.matrix.dtype is not dtype and not narrow:
        raise wrong(op, "state.matrix", slots.matrix.dtype, str(dtype))
    state(op, "state.matrix", slots.matrix, (*v.shape[1:], k.shape[2]), v)
    windows = (
        ("state.keys", slots.keys, k.dtype, k.shape[1:], k),
        ("state.values", slots.values, v.dtype, v.shape[1:], v),
        ("state.decays", slots.decays, dtype, v.shape[1:2], v),
        ("state.betas", slots.betas, dtype, v.shape[1:2], v),
    )
    for name, part, kind, tail, source in windows:
        if part.dtype is not kind:
            raise wrong(op, name, part.dtype, str(kind))
        window(op, name, part, slots.matrix, tail, source)
        if part.shape[1] != slots.window:
            raise wrong(op, name, f"of {part.shape[1]} rows", f"of {slots.window} rows")
    indices(op, "state.pending", slots.pending, slots.matrix.shape[:1], v)
    if slots.arrivals is not None:
        if slots.arrivals.dtype is not torch.int32:
            raise wrong(op, "state.arrivals", slots.arrivals.dtype, "int32")
        shape = (slots.matrix.shape[0], k.shape[1])
        shaped(op, "state.arrivals", slots.arrivals, shape, v)


def apart(op: str, argument: str, x: Tensor, source: Tensor) -> None:
    """Tensors that share no memory: what an op changes is never also what it reads."""
    if _shares_memory(x, source):
        raise wrong(op, argument, "in the memory of an input", "apart from the inputs")


def paged_kv(op: str, cache: PagedKV, heads: int | None, head_dim: int, like: Tensor) -> None:
    """Contiguous key and value pages of one shape, on the device of `like`."""
    keys, values = cache.keys, cache.values
    width = head_dim // kv_format(cache.format).codes
    if keys.ndim != 4 or cache.head_dim != head_dim or heads not in (None, keys.shape[2]):
        wanted = f"of shape (pages, page_size, {'H' if heads is None else heads}, {width})"
        raise wrong(op, "cache.keys", f"of shape {tuple(keys.shape)}", wanted)
    shaped(op, "cache.values", values, keys.shape, like)
    if keys.device != like.device:
        raise wrong(op, "cache.keys", f"on {keys.device}", f"on {like.device}")
    if not (keys.is_contiguous() and values.is_contiguous()):
        raise wrong(op, "cache", f"of strides {keys.stride()}, {values.stride()}", "contiguous")
    if _shares_memory(keys, values):
        raise wrong(op, "cache.values", "in the memory of cache.keys", "apart from them")


def _shares_memory(x: Tensor, y: Tensor) -> bool:
    """Whether the byte ranges that two tensors span overlap."""
    if x.is_meta or x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr():
        return False
    (a, b), (c, d) = _span(x), _span(y)
    return a < d and c < b


def _span(x: Tensor) -> tuple[int, int]:
    start = x.data_ptr()
    if x.numel() == 0:
        return start, start
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return start, start + (last + 1) * x.element_size()
