"""Bytes of tensors alive at once: what a pass takes, seen from its ops' results."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakBytes(TorchDispatchMode):
    """Counts storages made inside the context; `peak` is the most that was alive at once.

    What existed before is not counted, and neither is memory that a kernel uses inside.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive = 0
        self._views: dict[int, int] = {}
        self._old: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        for tensor in self._tensors((args, kwargs or {})):
            pointer = tensor.untyped_storage().data_ptr()
            if pointer not in self._views:
                self._old.add(pointer)
        out = func(*args, **(kwargs or {}))
        for tensor in self._tensors(out):
            self._add(tensor)
        self.peak = max(self.peak, self._alive)
        return out

    @staticmethod
    def _tensors(tree: object) -> list[torch.Tensor]:
        return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        pointer, size = storage.data_ptr(), storage.nbytes()
        if not size or pointer in self._old:
            return
        if not self._views.get(pointer):
            self._alive += size
        self._views[pointer] = self._views.get(pointer, 0) + 1
        weakref.finalize(tensor, self._drop, pointer, size)

    def _drop(self, pointer: int, size: int) -> None:
        self._views[pointer] -= 1
        if not self._views[pointer]:
            del self._views[pointer]
            self._alive -= size
