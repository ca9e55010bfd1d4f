"""Named error criteria, one for each number type an op can round to."""

from dataclasses import dataclass
from math import log, sqrt
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Criterion:
    """How far a result may lie from the float64 reference.

    `norm` bounds |error| / |reference|, both as Euclidean norms of the whole tensor. `worst`
    bounds each single error relative to the larger of that reference value and the reference's
    root mean square, or sqrt(2 ln n) times `norm` where that is more: the largest of n normal
    errors of that size comes so far. A value that is not finite where the reference is finite fails
    always; where the reference is infinite the values must be equal.
    """

    name: str
    norm: float
    worst: float

    def violation(self, actual: Tensor, expected: Tensor) -> str | None:
        """What breaks the criterion, as one line, or None. Both tensors have one shape."""
        got, want = actual.to(torch.float64), expected.to(torch.float64)
        finite = torch.isfinite(want)
        if not bool(got[~finite].eq(want[~finite]).all()):
            return "differs where the reference is infinite"
        got, want = got[finite], want[finite]
        if not bool(torch.isfinite(got).all()):
            return f"{int((~torch.isfinite(got)).sum())} of {got.numel()} values are not finite"
        if want.numel() == 0:
            return None
        error = (got - want).abs()
        size = float(want.norm())
        if float(error.norm()) > self.norm * size:
            return f"error norm {float(error.norm()):.3g} exceeds {self.norm:g} of {size:.3g}"
        worst = max(self.worst, self.norm * sqrt(2 * log(want.numel())))
        allowed = want.abs().clamp_min(size / want.numel() ** 0.5) * worst
        if bool((error > allowed).any()):
            ratio = float((error / allowed.clamp_min(torch.finfo(torch.float64).tiny)).max())
            return f"worst element is {ratio:.3g} times over its bound ({worst:g})"
        return None

    def share(self, actual: Tensor, expected: Tensor) -> float:
        """The larger part of the two bounds that finite values take: above 1 is a violation."""
        got, want = actual.to(torch.float64), expected.to(torch.float64)
        finite = torch.isfinite(want) & torch.isfinite(got)
        got, want = got[finite], want[finite]
        size = float(want.norm())
        if want.numel() == 0 or size == 0:
            return 0.0
        error = (got - want).abs()
        worst = max(self.worst, self.norm * sqrt(2 * log(want.numel())))
        allowed = want.abs().clamp_min(size / want.numel() ** 0.5) * worst
        return max(float(error.norm()) / (self.norm * size), float((error / allowed).max()))


# BF16 rounds by at most 2^-8 of a value; the worst element has room for a second rounding inside.
BF16: Final = Criterion("bf16", norm=2.0**-8, worst=2.0**-6)
FLOAT16: Final = Criterion("float16", norm=2.0**-11, worst=2.0**-9)
# Sums of some ten thousand float32 terms.
FLOAT32: Final = Criterion("float32", norm=1e-5, worst=1e-4)
FLOAT64: Final = Criterion("float64", norm=1e-12, worst=1e-11)

_BY_DTYPE: Final = MappingProxyType(
    {
        torch.bfloat16: BF16,
        torch.float16: FLOAT16,
        torch.float32: FLOAT32,
        torch.float64: FLOAT64,
    }
)


def criterion(dtype: torch.dtype, roundings: int = 1) -> Criterion:
    """The criterion for results of a float type. Raises ValueError for another type.

    An op of several parts rounds between them: with 16-bit results its bounds are `roundings`
    times those of a single one.
    """
    found = _BY_DTYPE.get(dtype)
    if found is None:
        raise ValueError(f"criterion: {dtype} has none; it is compared exactly")
    if roundings == 1 or dtype.itemsize != 2:
        return found
    name = f"{found.name}, {roundings} roundings"
    return Criterion(name, found.norm * roundings, found.worst * roundings)


def in_row_sizes(actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Both [..., D] in float64, each row divided by the root mean square of the reference's row.

    For results whose rows differ in size, as those of causal attention do: a criterion for the
    whole tensor would judge small rows by the large ones. Rows of zeros, and rows that the
    reference has infinities or NaN in, stay as they are.
    """
    got, want = actual.to(torch.float64), expected.to(torch.float64)
    size = want.square().mean(-1, keepdim=True).sqrt()
    size = torch.where(torch.isfinite(size) & (size > 0), size, 1.0)
    return got / size, want / size
