"""State snapshots: copies of one state slot over all recurrent layers, and putting them back."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer.models.forward_batch import Caches
from ninfer.runtime.cache_views import state_views


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """State after some number of tokens. Nobody changes it, so several may hold it.

    `tensors` have a first dimension of 1 and the order of `StateSnapshots.views`.
    """

    tensors: tuple[Tensor, ...]

    @property
    def is_finite(self) -> bool:
        """Whether it holds neither NaN nor infinity; waits for the device."""
        return all(bool(torch.isfinite(tensor).all()) for tensor in self.tensors)


class StateSnapshots:
    """Takes and restores snapshots of the committed state of `caches`.

    They live on the device of the caches, or in host memory on wish: there they cost no device
    memory and a transfer each way. Rows in a window are not part of a snapshot, so a slot must have
    none pending.
    """

    def __init__(self, caches: Caches, *, in_host_memory: bool = False) -> None:
        self.views = state_views(caches)
        self._pending = caches.pending
        host = torch.device("cpu")
        self.device = host if in_host_memory else caches.pending.device
        self.snapshot_bytes = self.views.unit_bytes

    def save(self, slot: int) -> Snapshot:
        """A copy of a slot's state, whose rows are all committed."""
        self._assert_committed(slot)
        return Snapshot(self.views.copy_out([slot], self.device))

    def restore(self, snapshot: Snapshot, slot: int) -> None:
        """Overwrite a slot's committed state; its window must be empty."""
        self._assert_committed(slot)
        self.views.copy_in([slot], snapshot.tensors)

    def _assert_committed(self, slot: int) -> None:
        assert int(self._pending[slot]) == 0, f"state slot {slot} has rows that are not committed"
