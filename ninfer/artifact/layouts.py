"""Physical layouts: which bytes of an object are which plane, and how long it is; needs no torch.

Formulas are those of the .ninfer container. All integers are Python's, so that no size overflows.
"""

from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Final

from ninfer.errors import DirectoryError
from ninfer.formats.registry import FORMATS, NumericFormat

CONTIGUOUS: Final = "contiguous-le-v1"
ROW_SPLIT: Final = "row-split-k128-v1"
BLOCK_SCALE: Final = "blockscale-k16-m128x4-v1"
ROW_SCALE: Final = "row-scale-v1"

RAW_BYTES: Final = "raw-bytes-v1"

# A tensor starts on, and its planes after the first too, a multiple of this; resources need none.
TENSOR_ALIGNMENT: Final = 256
MAX_RANK: Final = 16
# Sizes and offsets are signed 64-bit in every system call that will use them.
MAX_SIZE: Final = (1 << 63) - 1

_LAYOUT_OF_KIND: Final = MappingProxyType(
    {"direct": CONTIGUOUS, "grouped": ROW_SPLIT, "fp4": BLOCK_SCALE, "fp8": ROW_SCALE}
)
LAYOUTS: Final = tuple(_LAYOUT_OF_KIND.values())


@dataclass(frozen=True, slots=True)
class Plane:
    """A run of bytes inside an object: where it starts and how long it is."""

    offset: int
    bytes: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the plane."""
        return self.offset + self.bytes


def align_up(value: int, step: int) -> int:
    """The least multiple of `step` that is not below `value`."""
    return -(-value // step) * step


def layout_of(format: str) -> str:
    """The one layout that stores `format`. Raises DirectoryError for an unknown format."""
    return _LAYOUT_OF_KIND[_entry(format).kind]


def planes(format: str, layout: str, shape: tuple[int, ...]) -> tuple[Plane, ...]:
    """Planes of a tensor object in file order.

    contiguous-le-v1: words. row-split-k128-v1: base, high (0 bytes for 4- and 8-bit codes), scales.
    blockscale-k16-m128x4-v1: codes, scales, divisor. row-scale-v1: codes, scales.
    Raises DirectoryError for an unknown format or layout, a layout that does not store the format,
    a shape it cannot hold, or a size beyond 63 bits.
    """
    entry = _entry(format)
    if layout not in LAYOUTS:
        raise DirectoryError(f"unknown layout {layout!r}; known: {', '.join(LAYOUTS)}")
    if layout != _LAYOUT_OF_KIND[entry.kind]:
        stored = _LAYOUT_OF_KIND[entry.kind]
        raise DirectoryError(f"layout {layout} does not store {format}; {stored} does")
    _check_shape(entry, shape)
    found = tuple(_planes(entry, shape))
    if found[-1].end > MAX_SIZE:
        raise DirectoryError(f"shape {list(shape)} of {format} needs more than 2**63 - 1 bytes")
    return found


def encoded_bytes(format: str, layout: str, shape: tuple[int, ...]) -> int:
    """Exact length of a tensor object. Raises DirectoryError as `planes` does."""
    return planes(format, layout, shape)[-1].end


def _entry(format: str) -> NumericFormat:
    entry = FORMATS.get(format)
    if entry is None:
        raise DirectoryError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    return entry


def _check_shape(entry: NumericFormat, shape: tuple[int, ...]) -> None:
    if any(size <= 0 for size in shape):
        raise DirectoryError(f"shape {list(shape)} has a size that is not positive")
    if entry.kind == "direct":
        if len(shape) > MAX_RANK:
            raise DirectoryError(f"rank {len(shape)} is beyond the {MAX_RANK} axes of {CONTIGUOUS}")
        return
    if len(shape) != 2:
        raise DirectoryError(f"{entry.name} needs a shape of two sizes, got {list(shape)}")
    if entry.kind == "fp4" and (shape[0] % 128 or shape[1] % 64):
        raise DirectoryError(
            f"{entry.name} needs rows in multiples of 128 and columns of 64, got {list(shape)}"
        )


def _planes(entry: NumericFormat, shape: tuple[int, ...]) -> list[Plane]:
    if entry.kind == "direct":
        return [Plane(0, prod(shape) * entry.bits // 8)]
    rows, width = shape
    if entry.kind == "grouped":
        groups = rows * entry.groups_per_row(width)
        sizes = [groups * entry.base_bytes, groups * entry.high_bytes, groups * 2]
        return _stack(sizes)
    if entry.kind == "fp4":
        codes, scales = _stack([rows * width // 2, rows * width // 16])
        return [codes, scales, Plane(scales.end, 4)]
    return _stack([rows * width, rows * 2])


def _stack(sizes: list[int]) -> list[Plane]:
    """Planes of these sizes one after another, each on an aligned start."""
    out: list[Plane] = []
    for size in sizes:
        start = align_up(out[-1].end, TENSOR_ALIGNMENT) if out else 0
        out.append(Plane(start, size))
    return out
