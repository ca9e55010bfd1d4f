"""How fast matrices are quantised and decoded, beside a plain memory copy of the source."""

from typing import Final

import torch
from torch import Tensor

from ninfer.bench.report import Row, rate_row
from ninfer.bench.timer import Timing, measure
from ninfer.errors import FormatError
from ninfer.formats import FORMATS, PackedMatrix, quantise
from ninfer.formats.registry import NumericFormat

MEGABYTE: Final = 1e6
ROWS: Final = 2048
COLUMNS: Final = 5120


def packed_formats() -> list[NumericFormat]:
    """Formats that pack a matrix, in table order."""
    return [entry for entry in FORMATS.values() if entry.kind != "direct"]


def error_bound(entry: NumericFormat) -> float:
    """Largest error of an encoded entry, as a share of the largest entry of its row.

    Half a step at the top of the code range, with a tenth more for the rounding of the scale.
    """
    match entry.kind:
        case "grouped":
            half_step = 0.5 / entry.qmax
        case "fp4":
            half_step = 1 / 6  # from 6 to 4 it is 2
        case _:
            half_step = 16 / 448  # from 448 to 416 it is 32
    return 1.1 * half_step


def check(source: Tensor, packed: PackedMatrix, entry: NumericFormat) -> None:
    """Raise FormatError when `packed` holds illegal words or is too far from `source`."""
    packed.validate(entry.name)
    exact = source.to(torch.float32)
    limit = exact.abs().amax(1, keepdim=True) * error_bound(entry)
    error = (packed.dequantise() - exact).abs()
    # Written so that NaN fails too.
    if not bool((error <= limit).all()):
        raise FormatError(
            f"{entry.name}: error {float(error.max()):.3g} is above the format's bound; "
            "nothing was timed"
        )


def run(*, rows: int = ROWS, columns: int = COLUMNS, repeats: int = 5) -> list[Row]:
    """Check, then time, each packed format on one bf16 matrix of normal numbers.

    All figures count bytes of the bf16 source per second. Raises FormatError when a check fails.
    """
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(rows, columns, generator=generator).to(torch.bfloat16)
    megabytes = source.nbytes / MEGABYTE
    target = torch.zeros_like(source)
    copied = measure(lambda: target.copy_(source), repeats=repeats)
    roof = ("memory copy", megabytes / copied.median)
    shape = {"rows": rows, "columns": columns}
    result = [rate_row("copy", shape, "MB/s", megabytes, copied, roof)]
    for entry in packed_formats():
        packed = quantise(source, entry.name)
        check(source, packed, entry)
        for verb, timing in _timings(source, packed, entry.name, repeats):
            result.append(rate_row(f"{verb} {entry.name}", shape, "MB/s", megabytes, timing, roof))
    return result


def _timings(
    source: Tensor, packed: PackedMatrix, name: str, repeats: int
) -> list[tuple[str, Timing]]:
    return [
        ("quantise", measure(lambda: quantise(source, name), repeats=repeats)),
        ("decode", measure(lambda: packed.dequantise(torch.bfloat16), repeats=repeats)),
    ]
