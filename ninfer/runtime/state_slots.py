"""State slot pool: which recurrent-state slots are free, and clearing them for a new sequence."""

from ninfer.errors import CapacityError
from ninfer.models.forward_batch import Caches


class StateSlotPool:
    """Hands out state slot indices 0..slots-1; a fresh sequence starts from an all-zero state."""

    def __init__(self, slots: int, caches: Caches) -> None:
        self._free = list(range(slots - 1, -1, -1))
        self._slots = slots
        self._caches = caches

    @property
    def free_count(self) -> int:
        """Slots that can still be allocated."""
        return len(self._free)

    @property
    def capacity(self) -> int:
        """Slots in all."""
        return self._slots

    def allocate(self) -> int:
        """Take a slot and clear its convolution and recurrent state in every layer.

        Raises CapacityError, taking none, when all are taken.
        """
        if not self._free:
            raise CapacityError(
                f"all {self._slots} state slots are taken; wait for other requests to end"
            )
        slot = self._free.pop()
        for state in self._caches.gdn.values():
            state.conv.inputs[slot].zero_()
            state.delta.matrix[slot].zero_()
        self._caches.pending[slot] = 0
        return slot

    def free(self, slot: int) -> None:
        """Give a slot back."""
        assert slot not in self._free, "state slot freed twice"
        self._free.append(slot)
