"""Object bytes to tensors and back: views of a payload, and the planes that a writer stores."""

import struct
import sys
from collections.abc import Iterator
from math import isfinite

import torch
from torch import Tensor

from ninfer.artifact.directory import TensorEntry
from ninfer.artifact.layouts import Plane, planes
from ninfer.errors import InventoryError, PayloadError
from ninfer.formats import (
    DIRECT_DTYPES,
    Fp8RowMatrix,
    GroupedMatrix,
    Nvfp4Matrix,
    PackedMatrix,
    numeric_format,
)

assert sys.byteorder == "little", "stored words are little-endian and are used as they lie"


def view_object(entry: TensorEntry, words: Tensor) -> Tensor | PackedMatrix:
    """The tensor or matrix of an object's bytes (uint8, `entry.bytes` long); copies nothing.

    Raises PayloadError for an NVFP4 divisor that is not positive and finite; other words are not
    looked at.
    """
    parts = [words[p.offset : p.end] for p in planes(entry.format, entry.layout, entry.shape)]
    dtype = DIRECT_DTYPES.get(entry.format)
    if dtype is not None:
        return parts[0].view(dtype).view(entry.shape)
    rows, width = entry.shape
    match numeric_format(entry.format).kind:
        case "grouped":
            return _view_grouped(entry.format, rows, width, parts)
        case "fp4":
            divisor = float(parts[2].view(torch.float32))
            if not (isfinite(divisor) and divisor > 0):
                raise PayloadError(
                    f"{entry.name}: divisor is {divisor}; it must be finite and greater than 0"
                )
            return Nvfp4Matrix((rows, width), parts[0].view(rows, -1), parts[1], divisor)
        case _:
            codes, scales = parts[0].view(rows, width), parts[1].view(torch.bfloat16)
            return Fp8RowMatrix((rows, width), codes, scales)


def object_pieces(entry: TensorEntry, value: Tensor | PackedMatrix) -> Iterator[memoryview | bytes]:
    """The bytes of an object, in order and with zero padding between planes.

    Raises InventoryError when `value` is not of the entry's shape and format.
    """
    _check_value(entry, value)
    end = 0
    for plane, words in zip(_planes(entry), plane_words(value), strict=True):
        if words is None:
            continue
        yield bytes(plane.offset - end)
        yield words
        end = plane.end
    yield bytes(entry.bytes - end)


def _view_grouped(format: str, rows: int, width: int, parts: list[Tensor]) -> GroupedMatrix:
    entry = numeric_format(format)
    groups = entry.groups_per_row(width)
    base, high, scales = parts
    return GroupedMatrix(
        format,
        (rows, width),
        base.view(rows, groups, entry.base_bytes),
        high.view(rows, groups, entry.high_bytes) if entry.high_bytes else None,
        scales.view(torch.float16).view(rows, groups),
    )


def _planes(entry: TensorEntry) -> tuple[Plane, ...]:
    return planes(entry.format, entry.layout, entry.shape)


def _check_value(entry: TensorEntry, value: Tensor | PackedMatrix) -> None:
    if isinstance(value, Tensor):
        wanted = DIRECT_DTYPES.get(entry.format)
        if value.dtype != wanted:
            raise InventoryError(
                f"object {entry.name!r} is declared {entry.format}, got a {value.dtype} tensor"
            )
    elif value.format != entry.format:
        raise InventoryError(
            f"object {entry.name!r} is declared {entry.format}, got {value.format}"
        )
    if tuple(value.shape) != entry.shape:
        raise InventoryError(
            f"object {entry.name!r} is declared with shape {list(entry.shape)},"
            f" got {list(value.shape)}"
        )


def plane_words(value: Tensor | PackedMatrix) -> list[memoryview | bytes | None]:
    """Words of each plane of a whole object or of some of its rows, in file order.

    None stands for a plane that the format does not have.
    """
    match value:
        case GroupedMatrix():
            return [
                _raw(value.base),
                value.high if value.high is None else _raw(value.high),
                _raw(value.scales),
            ]
        case Nvfp4Matrix():
            return [_raw(value.codes), _raw(value.scales), struct.pack("<f", value.divisor)]
        case Fp8RowMatrix():
            return [_raw(value.codes), _raw(value.scales)]
        case _:
            return [_raw(value)]


def _raw(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data
