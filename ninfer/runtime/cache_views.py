"""Caches as named tensors: the rows of a page or of a state slot over all layers, in one order."""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.models.forward_batch import Caches
from ninfer.ops.tensors import PagedKV


@dataclass(frozen=True, slots=True)
class CacheViews:
    """Tensors [N, ...] whose row n over all of them is one unit: page n, or state slot n."""

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]

    @property
    def unit_bytes(self) -> int:
        """Bytes of one unit."""
        return sum(t[0].numel() * t.element_size() for t in self.tensors)

    @property
    def layout(self) -> str:
        """One line a tensor: name, number type, shape of a unit. Equal layouts, equal bytes."""
        return "".join(
            f"{name} {_dtype_name(t.dtype)} {'x'.join(map(str, t.shape[1:]))}\n"
            for name, t in zip(self.names, self.tensors, strict=True)
        )

    def copy_out(self, units: Items[int], device: torch.device) -> tuple[Tensor, ...]:
        """Copies [len(units), ...] of these units on `device`."""
        return tuple(t[self._index(t, units)].to(device) for t in self.tensors)

    def copy_in(self, units: Items[int], values: Iterable[Tensor]) -> None:
        """Overwrite these units with values [len(units), ...] of any device."""
        for tensor, value in zip(self.tensors, values, strict=True):
            assert value.dtype == tensor.dtype and value.shape == (len(units), *tensor.shape[1:])
            tensor[self._index(tensor, units)] = value.to(tensor.device)

    @staticmethod
    def _index(tensor: Tensor, units: Items[int]) -> Tensor:
        return torch.tensor(units, dtype=torch.int64, device=tensor.device)


def page_views(layers: Mapping[str, PagedKV]) -> CacheViews:
    """Pages of these layers, drafter layers included; the names are the caller's."""
    named = [
        (f"{layer}.{part}.{kv.format}", tensor)
        for layer, kv in layers.items()
        for part, tensor in (
            ("keys", kv.keys),
            ("values", kv.values),
            ("key_scales", kv.key_scales),
            ("value_scales", kv.value_scales),
        )
        if tensor is not None
    ]
    return CacheViews(tuple(name for name, _ in named), tuple(tensor for _, tensor in named))


def state_views(caches: Caches) -> CacheViews:
    """Committed convolution inputs and recurrent matrices of all recurrent layers."""
    names: list[str] = []
    tensors: list[Tensor] = []
    for layer, state in caches.gdn.items():
        names += [f"state.{layer}.conv", f"state.{layer}.delta"]
        tensors += [state.conv.inputs, state.delta.matrix]
    return CacheViews(tuple(names), tuple(tensors))


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
