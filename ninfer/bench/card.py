"""A CUDA card as the tuner uses it: which one, its copy rate, and memory beyond its cache."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, Self

import torch
from torch import Tensor

from ninfer.bench.replay import replayed
from ninfer.ops.tensors import Weight

# Bytes of weights that calls go through in turn: several times the largest cache.
_ROTATED: Final = 400_000_000
_COPIED: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Card:
    """One device and its architecture (ten times the compute capability)."""

    device: torch.device
    architecture: int

    @classmethod
    def first(cls) -> Self:
        """The current CUDA device."""
        device = torch.device("cuda", torch.cuda.current_device())
        major, minor = torch.cuda.get_device_capability(device)
        return cls(device, 10 * major + minor)

    def copy_rate(self) -> float:
        """Bytes that a copy reads and writes, in GB/s."""
        source = torch.zeros(_COPIED, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * _COPIED / 1e9 / replayed([lambda: target.copy_(source)]).median


def rotated(weight: Weight, card: Card) -> list[Weight]:
    """A weight and copies of it that together do not fit the card's cache, as memory allows."""
    free = torch.cuda.mem_get_info(card.device)[0]
    count = max(2, min(-(-_ROTATED // weight.nbytes), free // 2 // weight.nbytes))
    return [weight, *(_copy(weight) for _ in range(count - 1))]


def _copy(value: Any) -> Any:
    """A tensor or a view of tensors with every tensor cloned."""
    if isinstance(value, Tensor):
        return value.clone()
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{n: _copy(x) for n, x in parts.items() if isinstance(x, Tensor)})
    return value
