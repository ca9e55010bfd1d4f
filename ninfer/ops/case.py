"""Input cases of ops: a seeded builder of arguments, and builders of ragged rows and caches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Generator, Tensor

from ninfer.formats import kv, quantise
from ninfer.ops.tensors import PagedKV, RaggedRows, Weight

_DENSE: Final = {"BF16": torch.bfloat16, "FP32": torch.float32}


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of one call. Only those named in `changed` may be changed by it.

    All arguments go by keyword, so that a change is reported under its parameter's name.
    """

    arguments: dict[str, Any]
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A named input of one op, built anew for each run from a seed and an activation type.

    `roundings` are those that the op's contract makes one behind the other, its result's included.
    """

    op: Callable[..., Any]
    name: str
    build: Callable[["Inputs"], Call]
    roundings: int = 1

    @property
    def id(self) -> str:
        """Op and case name, for reports."""
        return f"{self.op.__name__}-{self.name}"

    def make(self, dtype: torch.dtype, device: torch.device | str = "cpu", seed: int = 0) -> Call:
        """The call with activations of `dtype`; the same values on every device."""
        return self.build(Inputs(dtype, torch.device(device), seed))


class Inputs:
    """Random tensors of one case, drawn and encoded on the CPU: every device sees the same ones."""

    def __init__(self, dtype: torch.dtype, device: torch.device, seed: int) -> None:
        self.dtype = dtype
        self.device = device
        self._generator = Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
        """Normal values of a standard deviation, in the activation type unless told otherwise."""
        values = torch.randn(shape, generator=self._generator) * scale
        return values.to(self.device, dtype or self.dtype)

    def uniform(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Values in [0, 1)."""
        values = torch.rand(shape, generator=self._generator)
        return values.to(self.device, dtype or self.dtype)

    def weight(self, form: str, rows: int, columns: int) -> Weight:
        """A matrix in a numeric format, of a size that keeps products near 1."""
        values = torch.randn((rows, columns), generator=self._generator) * columns**-0.5
        dense = _DENSE.get(form)
        packed = quantise(values, form) if dense is None else values.to(dense)
        return packed.to(self.device)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Int64 values in low..high - 1."""
        return torch.randint(low, high, shape, generator=self._generator).to(self.device)

    def shuffled(self, count: int) -> Tensor:
        """A permutation of 0..count - 1."""
        return torch.randperm(count, generator=self._generator).to(self.device)

    def ragged(
        self,
        new: Sequence[int],
        cached: Sequence[int] | None = None,
        page_size: int = 64,
        held: Sequence[bool] | None = None,
    ) -> RaggedRows:
        """Sequences with `new` rows after `cached` ones, on shuffled pages and state slots.

        There is one more state slot and one more page than needed, so that a stray write shows.
        """
        lengths = [n + c for n, c in zip(new, cached or [0] * len(new), strict=True)]
        pages = [-(-length // page_size) for length in lengths]
        order = self.shuffled(sum(pages) + 1)
        table = torch.zeros(len(new), max(pages, default=0), dtype=torch.int64)
        used = 0
        for sequence, count in enumerate(pages):
            table[sequence, :count] = order[used : used + count].cpu()
            used += count
        offsets = torch.tensor([0, *new]).cumsum(0)
        return RaggedRows(
            offsets=offsets.to(self.device),
            kv_lengths=torch.tensor(lengths, dtype=torch.int64, device=self.device),
            page_table=table.to(self.device),
            state_slots=self.shuffled(len(new) + 1)[: len(new)],
            held=None if held is None else torch.tensor(held, device=self.device),
        )

    def pending(self, rows: RaggedRows, counts: Sequence[int]) -> Tensor:
        """[S] pending rows: `counts` in the slots of `rows`, and some in the slot of no one."""
        pending = torch.full((len(counts) + 1,), max(counts, default=0), device=self.device)
        pending[rows.state_slots] = torch.tensor(counts, dtype=torch.int64, device=self.device)
        return pending

    def cache(self, form: str, pages: int, heads: int, dim: int, page_size: int = 64) -> PagedKV:
        """Pages full of random keys and values in one KV format."""
        keys, values = torch.randn((2, pages, page_size, heads, dim), generator=self._generator)
        planes = (*kv.encode(form, keys), *kv.encode(form, values))
        keys, key_scales, values, value_scales = (
            None if plane is None else plane.contiguous().to(self.device) for plane in planes
        )
        assert keys is not None and values is not None
        return PagedKV(form, keys, values, key_scales, value_scales)
