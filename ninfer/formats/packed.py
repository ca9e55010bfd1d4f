"""Packed matrices: the stored words of a weight, as tensors that artifacts, ops and codecs share.

The value of each entry is defined in float32; `dequantise` rounds that value once to another
dtype. All three classes hold views: making one, or taking its rows, copies no words.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Self

import torch
from torch import Tensor

from ninfer.errors import FormatError, PayloadError
from ninfer.formats.minifloat import decode_e4m3, decode_nibbles
from ninfer.formats.planes import unpack_codes
from ninfer.formats.registry import NumericFormat, numeric_format
from ninfer.formats.swizzle import TILE_ROWS, unswizzle

# Entries decoded at a time on a CPU: temporaries then stay in a core's cache.
_CPU_BLOCK = 1 << 18
_DEVICE_BLOCK = 1 << 26


def row_blocks(rows: int, width: int, device: torch.device, step: int = 1) -> Iterator[slice]:
    """Slices that cover `rows`, each a multiple of `step` rows and of cache-friendly size."""
    budget = _CPU_BLOCK if device.type == "cpu" else _DEVICE_BLOCK
    count = max(budget // max(width, 1) // step, 1) * step
    for start in range(0, rows, count):
        yield slice(start, min(start + count, rows))


def _check_span(start: int, stop: int, rows: int) -> None:
    if not 0 <= start <= stop <= rows:
        raise FormatError(f"rows {start}:{stop} lie outside a matrix of {rows} rows")


def _first(where: Tensor) -> tuple[int, ...]:
    """Index of the first true element."""
    return tuple(int(i) for i in where.nonzero()[0])


def _check_multipliers(name: str, scales: Tensor) -> None:
    """Refuse scales that are NaN, infinite, negative or -0. `scales` is a 16-bit float tensor."""
    # As integers, the words of +0 up to the largest finite value are those below infinity's word.
    words = scales.view(torch.int16)
    infinity = torch.full((1,), torch.inf, dtype=scales.dtype).view(torch.int16).item()
    bad = (words < 0) | (words >= infinity)
    if bool(bad.any()):
        at = _first(bad)
        word = int(words[at]) & 0xFFFF
        raise PayloadError(
            f"{name}: scale {list(at)} is {scales[at].item()} (word {word:#06x});"
            " scales must be finite and not negative"
        )


@dataclass(frozen=True, slots=True)
class GroupedMatrix:
    """Integer codes with one binary16 multiplier a group: Q4, Q5, Q6 (64 lanes) and W8 (32).

    Entry [n, k] is float32(scales[n, k // G]) * float32(code[n, k]), which float32 holds exactly.
    Rows are padded to a multiple of 128 lanes (gpr groups); padding lanes hold code 0. Planes are
    those of `ninfer.formats.planes`.
    """

    format: str
    shape: tuple[int, int]
    base: Tensor  # [N, gpr, 32] uint8
    high: Tensor | None  # [N, gpr, 8 or 16] uint8, None for 4- and 8-bit codes
    scales: Tensor  # [N, gpr] float16

    def __post_init__(self) -> None:
        rows, width = self.shape
        groups = self.entry.groups_per_row(width)
        assert self.base.shape == (rows, groups, self.entry.base_bytes), self.base.shape
        assert self.scales.shape == (rows, groups), self.scales.shape
        assert self.scales.dtype == torch.float16, self.scales.dtype
        high = None if self.high is None else self.high.shape[2]
        assert (high or 0) == self.entry.high_bytes, high

    @property
    def entry(self) -> NumericFormat:
        """The table entry of this matrix's format."""
        return numeric_format(self.format)

    @property
    def device(self) -> torch.device:
        """Where the words lie."""
        return self.base.device

    @property
    def nbytes(self) -> int:
        """Bytes that the planes hold, padding lanes included."""
        return (
            self.base.nbytes + self.scales.nbytes + (0 if self.high is None else self.high.nbytes)
        )

    def rows(self, start: int, stop: int) -> Self:
        """Rows start:stop as views. Raises FormatError when they lie outside the matrix."""
        _check_span(start, stop, self.shape[0])
        return replace(
            self,
            shape=(stop - start, self.shape[1]),
            base=self.base[start:stop],
            high=None if self.high is None else self.high[start:stop],
            scales=self.scales[start:stop],
        )

    def to(self, device: torch.device | str) -> Self:
        """The same words on `device`."""
        return replace(
            self,
            base=self.base.to(device),
            high=None if self.high is None else self.high.to(device),
            scales=self.scales.to(device),
        )

    def dequantise(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Values [N, K], each the exact float32 product rounded once to `dtype`."""
        rows, width = self.shape
        out = torch.empty(rows, width, dtype=dtype, device=self.device)
        for span in row_blocks(rows, width, self.device):
            high = None if self.high is None else self.high[span]
            values = unpack_codes(self.base[span], high, self.entry).to(torch.float32)
            values *= self.scales[span].to(torch.float32).unsqueeze(-1)
            out[span] = values.flatten(1)[:, :width]
        return out

    def validate(self, name: str, *, codes: bool = True) -> None:
        """Raise PayloadError that names `name` when a word is one that no writer may produce.

        Without `codes` only the scales are read, a small part of the matrix.

        Refused: NaN, infinite, negative or -0 scales, the W8 code -128, codes under a zero scale,
        and padding that is not zero.
        """
        _check_multipliers(name, self.scales)
        if not codes:
            return
        rows, width = self.shape
        group = self.entry.group
        whole = -(-width // group)
        for span in row_blocks(rows, width, self.device):
            high = None if self.high is None else self.high[span]
            lanes = unpack_codes(self.base[span], high, self.entry)
            scales = self.scales[span]
            illegal = (lanes < self.entry.qmin).flatten(1)
            if bool(illegal.any()):
                row, lane = _first(illegal)
                raise PayloadError(
                    f"{name}: code [{span.start + row}, {lane}] is {self.entry.qmin - 1};"
                    f" {self.format} codes are {self.entry.qmin}..{self.entry.qmax}"
                )
            dead = (scales == 0) & lanes.any(dim=-1)
            if bool(dead.any()):
                row, column = _first(dead)
                raise PayloadError(
                    f"{name}: group [{span.start + row}, {column}] has scale 0 and codes that are"
                    " not 0"
                )
            if bool(lanes.flatten(1)[:, width:].any()) or bool(scales[:, whole:].any()):
                raise PayloadError(f"{name}: padding beyond column {width} is not zero")


@dataclass(frozen=True, slots=True)
class Nvfp4Matrix:
    """E2M1 codes with one E4M3FN scale per 16 columns and one float32 divisor for the matrix.

    N is a multiple of 128 and K of 64. Entry [n, k] is float32(e2m1(code) * e4m3(scale)), exact in
    float32, then divided by float32(divisor) with one rounding. `scales` is the flat 128x4 tile
    order of `ninfer.formats.swizzle`; `divisor` is a value that float32 holds exactly.
    """

    shape: tuple[int, int]
    codes: Tensor  # [N, K / 2] uint8, even column in the low nibble
    scales: Tensor  # [N * K / 16] uint8
    divisor: float

    def __post_init__(self) -> None:
        rows, width = self.shape
        assert rows % TILE_ROWS == 0 and width % 64 == 0, self.shape
        assert self.codes.shape == (rows, width // 2), self.codes.shape
        assert self.scales.shape == (rows * width // 16,), self.scales.shape

    @property
    def format(self) -> str:
        """Always "NVFP4"."""
        return "NVFP4"

    @property
    def device(self) -> torch.device:
        """Where the words lie."""
        return self.codes.device

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales; the divisor lives on the host."""
        return self.codes.nbytes + self.scales.nbytes

    def rows(self, start: int, stop: int) -> Self:
        """Rows start:stop as views; both must be multiples of 128, the height of a scale tile.

        Raises FormatError when they are not, or lie outside the matrix.
        """
        _check_span(start, stop, self.shape[0])
        if start % TILE_ROWS or stop % TILE_ROWS:
            raise FormatError(
                f"rows {start}:{stop} of an NVFP4 matrix do not lie on {TILE_ROWS}-row borders"
            )
        width = self.shape[1]
        return replace(
            self,
            shape=(stop - start, width),
            codes=self.codes[start:stop],
            scales=self.scales[start * width // 16 : stop * width // 16],
        )

    def to(self, device: torch.device | str) -> Self:
        """The same words on `device`."""
        return replace(self, codes=self.codes.to(device), scales=self.scales.to(device))

    def dequantise(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Values [N, K]: the float32 value of each entry, rounded once to `dtype`."""
        rows, width = self.shape
        # On a CUDA device torch divides by a host scalar as times its reciprocal, which rounds
        # twice; a tensor on the device keeps the true division.
        divisor = torch.full((1,), self.divisor, dtype=torch.float32, device=self.device)
        out = torch.empty(rows, width, dtype=dtype, device=self.device)
        for span in row_blocks(rows, width, self.device, step=TILE_ROWS):
            part = self.rows(span.start, span.stop)
            scales = decode_e4m3(unswizzle(part.scales, part.shape[0]))  # [n, K / 16]
            values = decode_nibbles(part.codes).view(*scales.shape, 16)
            values *= scales.unsqueeze(-1)
            out[span] = values.div_(divisor).flatten(1)
        return out

    def validate(self, name: str, *, codes: bool = True) -> None:
        """Raise PayloadError that names `name` for a scale that is NaN, negative or -0, or a
        divisor that is not positive and finite; every code is legal, so `codes` changes nothing."""
        if not (isfinite(self.divisor) and self.divisor > 0):
            raise PayloadError(
                f"{name}: divisor is {self.divisor}; it must be finite and greater than 0"
            )
        bad = self.scales >= 0x7F
        if bool(bad.any()):
            word = int(self.scales[bad][0])
            row, column = _first(unswizzle(bad, self.shape[0]))
            raise PayloadError(
                f"{name}: block scale [{row}, {column}] has word {word:#04x};"
                " scales must be finite and not negative"
            )


@dataclass(frozen=True, slots=True)
class Fp8RowMatrix:
    """E4M3FN codes with one bfloat16 multiplier a row.

    Entry [n, k] is float32(scales[n]) * float32(code[n, k]), one float32 rounding (only values
    near the subnormal range need it).
    """

    shape: tuple[int, int]
    codes: Tensor  # [N, K] uint8
    scales: Tensor  # [N] bfloat16

    def __post_init__(self) -> None:
        assert self.codes.shape == self.shape, self.codes.shape
        assert self.scales.shape == self.shape[:1], self.scales.shape
        assert self.scales.dtype == torch.bfloat16, self.scales.dtype

    @property
    def format(self) -> str:
        """Always "FP8_E4M3FN_ROW_BF16S"."""
        return "FP8_E4M3FN_ROW_BF16S"

    @property
    def device(self) -> torch.device:
        """Where the words lie."""
        return self.codes.device

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        return self.codes.nbytes + self.scales.nbytes

    def rows(self, start: int, stop: int) -> Self:
        """Rows start:stop as views. Raises FormatError when they lie outside the matrix."""
        _check_span(start, stop, self.shape[0])
        shape = (stop - start, self.shape[1])
        return replace(
            self, shape=shape, codes=self.codes[start:stop], scales=self.scales[start:stop]
        )

    def to(self, device: torch.device | str) -> Self:
        """The same words on `device`."""
        return replace(self, codes=self.codes.to(device), scales=self.scales.to(device))

    def dequantise(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Values [N, K]: the float32 value of each entry, rounded once to `dtype`."""
        rows, width = self.shape
        out = torch.empty(rows, width, dtype=dtype, device=self.device)
        for span in row_blocks(rows, width, self.device):
            values = decode_e4m3(self.codes[span])
            values *= self.scales[span].to(torch.float32).unsqueeze(-1)
            out[span] = values
        return out

    def validate(self, name: str, *, codes: bool = True) -> None:
        """Raise PayloadError that names `name` for NaN, infinite, negative or -0 scales, NaN codes,
        or codes other than zero under a zero scale. Without `codes` only the scales are read."""
        _check_multipliers(name, self.scales)
        if not codes:
            return
        for span in row_blocks(*self.shape, self.device):
            magnitude = self.codes[span] & 0x7F
            bad = magnitude == 0x7F
            if bool(bad.any()):
                row, column = _first(bad)
                raise PayloadError(
                    f"{name}: code [{span.start + row}, {column}] is NaN; FP8 codes must be finite"
                )
            dead = (self.scales[span] == 0) & magnitude.any(dim=-1)
            if bool(dead.any()):
                row = span.start + _first(dead)[0]
                raise PayloadError(f"{name}: row {row} has scale 0 and codes that are not 0")


PackedMatrix = GroupedMatrix | Nvfp4Matrix | Fp8RowMatrix
