"""A weight-only product to be measured: random weight, rotating copies, and its check."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Final

import torch
from torch import Tensor

from ninfer.bench.linear_variants import Variant
from ninfer.bench.replay import copies_for
from ninfer.errors import FormatError
from ninfer.formats import GroupedMatrix, numeric_format
from ninfer.ops.linear import fast, portable
from ninfer.ops.linear.fast_plan import FEW
from ninfer.ops.linear.fragment_order import FragmentMatrix, groups_of, to_fragments
from ninfer.ops.linear.launcher import architecture
from ninfer.ops.tolerance import BF16

PORTABLE: Final = "portable"
# Rows of the reference that are computed at a time, in float64.
_REFERENCE_ROWS: Final = 16384
_NAMES: Final = {"Q4": "Q4G64_F16S", "Q5": "Q5G64_F16S", "Q6": "Q6G64_F16S", "W8": "W8G32_F16S"}


def random_matrix(form: str, rows: int, columns: int, device: torch.device) -> GroupedMatrix:
    """Random legal words whose products have about unit size."""
    entry = numeric_format(_NAMES[form])
    generator = torch.Generator(device).manual_seed(rows + columns)
    groups = entry.groups_per_row(columns)

    def plane(count: int) -> Tensor:
        shape = (rows, groups, count)
        found = torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)
        # The byte of the one code that W8 does not have; any nibble is legal elsewhere.
        return found.masked_fill_(found == 0x80, 0) if entry.bits == 8 else found

    scale = 2.0 / (entry.qmax * columns**0.5)
    scales = torch.rand(rows, groups, device=device, generator=generator) * scale + scale / 4
    high = plane(entry.high_bytes) if entry.high_bits else None
    assert columns % 128 == 0, columns
    return GroupedMatrix(entry.name, (rows, columns), plane(entry.base_bytes), high, scales.half())


@dataclass(frozen=True, slots=True)
class Product:
    """One weight in fragment order in several copies, and activations for up to 64 tokens."""

    form: str
    matrix: GroupedMatrix
    copies: tuple[FragmentMatrix, ...]
    x: Tensor
    variant: Variant | None = None
    tier: str = "CUDA"

    @property
    def bytes(self) -> int:
        """Bytes that one call must read: codes and scales, nothing else of size."""
        return self.copies[0].nbytes

    def operations(self, tokens: int) -> int:
        """Multiplications and additions of one call."""
        rows, columns = self.matrix.shape
        return 2 * rows * columns * tokens

    def plan(self, tokens: int) -> fast.Plan | None:
        """Other sizes than the table's, or None."""
        if self.variant is None:
            return None
        number = architecture(self.x.device.index)
        return self.variant.plan(number, self.matrix.entry.bits, tokens)

    def output(self, tokens: int) -> Tensor:
        """Where results go, full of NaN."""
        shape = (tokens, self.matrix.shape[0])
        return torch.full(shape, float("nan"), dtype=torch.bfloat16, device=self.x.device)

    def call(self, copy: int, y: Tensor) -> None:
        """One launch for as many tokens as `y` has."""
        tokens = y.shape[0]
        if self.tier == PORTABLE:
            y.copy_(portable.linear(self.x[:tokens], self.copies[copy]))
            return
        call = fast.Call(self.x[:tokens], self.copies[copy], y)
        fast.launch(call, wide=tokens > FEW, plan=self.plan(tokens))

    def calls(self, tokens: int) -> list[Callable[[], object]]:
        """One call for each copy; some more when the copies are few."""
        y = self.output(tokens)
        order = list(range(len(self.copies))) * ceil(4 / len(self.copies))
        if self.tier == PORTABLE:
            return [partial(portable.linear, self.x[:tokens], self.copies[copy]) for copy in order]
        return [partial(self.call, copy, y) for copy in order]


def product(
    form: str,
    rows: int,
    columns: int,
    device: torch.device,
    groups: int | None = None,
    tier: str = "CUDA",
) -> Product:
    """A product of that shape, its weight cut by the table or into slices of so many `groups`.

    The portable tier has whole rows as slices.
    """
    matrix = random_matrix(form, rows, columns, device)
    if tier == PORTABLE:
        first = to_fragments(matrix, groups_of(columns))
    else:
        by_table = fast.slice_groups(device, matrix.format, columns)
        first = to_fragments(matrix, groups or by_table)
        if groups is None:
            fast.ready(first)
    more = copies_for(first.nbytes) - 1
    copies = (first, *(replace(first, words=first.words.clone()) for _ in range(more)))
    generator = torch.Generator(device).manual_seed(1)
    x = torch.randn(64, columns, device=device, generator=generator).bfloat16()
    torch.cuda.synchronize(device)
    return Product(form, matrix, copies, x, tier=tier)


def check(case: Product, tokens: tuple[int, ...]) -> None:
    """Raise FormatError unless results for each token count are right, in every copy's first call.

    Right: within the bf16 criterion of float64, nothing left unwritten, and bit for bit the rows
    that the largest count up to 16, or above, gives.
    """
    widest: dict[bool, Tensor] = {}
    expected = reference(case.matrix, case.x[: max(tokens)])
    for count in sorted(tokens, reverse=True):
        y = case.output(count)
        case.call(count % len(case.copies), y)
        found = BF16.violation(y, expected[:count])
        whole = widest.setdefault(count > FEW, y)
        if found is None and not torch.equal(y.view(torch.int16), whole[:count].view(torch.int16)):
            found = f"rows differ from those of {whole.shape[0]} tokens"
        if found is not None:
            shape = list(case.matrix.shape)
            raise FormatError(f"{case.form} {shape} for {count} tokens: {found}; not timed")


def reference(matrix: GroupedMatrix, x: Tensor) -> Tensor:
    """x @ matrix^T in float64."""
    rows = matrix.shape[0]
    wide = x.double()
    parts = [
        wide @ matrix.rows(start, min(start + _REFERENCE_ROWS, rows)).dequantise(torch.float64).T
        for start in range(0, rows, _REFERENCE_ROWS)
    ]
    return torch.cat(parts, -1)
