"""Reading blocks of an object's rows from source tensors, checked for dtype, shape and NaN."""

from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from ninfer.convert.checkpoint import Checkpoint, Sources, SourceTensor
from ninfer.convert.source_map import Rows
from ninfer.errors import CheckpointError

# Entries of the finished matrix that are worked on at a time: 64 MiB of bfloat16.
BLOCK_ENTRIES: Final = 1 << 25
# Height of an NVFP4 scale tile; blocks of rows end on its borders.
BLOCK_ROWS: Final = 128

FLOATS: Final = ("BF16", "F16", "F32")


def located(sources: Sources, name: str, origin: str) -> tuple[Checkpoint, SourceTensor]:
    """The checkpoint to take a tensor from. Raises CheckpointError that says where none is."""
    holder = sources.holder(name, origin)
    if holder is None:
        raise CheckpointError(_missing(sources, name, origin))
    found = holder.find(name)
    assert found is not None
    return holder, found


def expect(tensor: SourceTensor, shape: Sequence[int], dtypes: Sequence[str]) -> None:
    """Refuse another shape or dtype. Raises CheckpointError naming tensor, file and both values."""
    if tensor.shape != tuple(shape):
        raise CheckpointError(
            f"{tensor} has shape {list(tensor.shape)}; expected {list(shape)}: the checkpoint is "
            "not of this geometry"
        )
    if tensor.dtype not in dtypes:
        raise CheckpointError(f"{tensor} has dtype {tensor.dtype}; expected {' or '.join(dtypes)}")


def check_finite(values: Tensor, tensor: SourceTensor) -> None:
    """Raise CheckpointError naming tensor and file when a value is NaN or infinite."""
    if values.dtype == torch.bfloat16:
        # Words without the sign order as magnitudes do; infinity and NaN are the largest.
        bad = bool((values.view(torch.int16) & 0x7FFF).max() >= 0x7F80)
    else:
        bad = not bool(values.isfinite().all())
    if bad:
        raise CheckpointError(f"{tensor} holds a value that is not finite")


def read_rows(source: Tensor, rows: Rows, start: int, stop: int, share: int = 1) -> Tensor:
    """Rows start:stop of a piece, [stop - start, width / share], read from its tensor.

    `share` is how many entries lie in one word of `source`: 2 for packed nibbles, 16 for scales of
    blocks of 16. Only pages that hold these rows are touched.
    """
    if rows.transposed:
        assert share == 1, "transposed pieces are never packed"
        return source.reshape(-1, rows.columns).t()[start:stop].contiguous()
    periods = source.reshape(-1, rows.period, rows.columns // share)
    first, last = start // rows.length, -(-stop // rows.length)
    found = periods[first:last, rows.start : rows.start + rows.length].flatten(0, 1)
    skipped = first * rows.length
    return found[start - skipped : stop - skipped]


def row_spans(count: int, width: int) -> Iterator[tuple[int, int]]:
    """Blocks of rows that cover `count`, each of bounded size and on a tile border."""
    step = max(BLOCK_ENTRIES // max(width, 1) // BLOCK_ROWS, 1) * BLOCK_ROWS
    for start in range(0, count, step):
        yield start, min(start + step, count)


def overlaps(pieces: Sequence[Rows], start: int, stop: int) -> Iterator[tuple[Rows, int, int]]:
    """The pieces that rows start:stop of their stack fall into, with the rows of each piece."""
    base = 0
    for piece in pieces:
        low, high = max(start, base), min(stop, base + piece.count)
        if low < high:
            yield piece, low - base, high - base
        base += piece.count


def _missing(sources: Sources, name: str, origin: str) -> str:
    asked = sources.order(origin)
    if not asked:
        return f"tensor {name!r} comes from a drafter checkpoint; give --drafter-source DIR"
    folders = " or ".join(str(checkpoint.folder) for checkpoint in asked)
    text = f"tensor {name!r} is in no shard of {folders}"
    if name.startswith("mtp."):
        return (
            f"{text}; saving with transformers drops the MTP layer, so give the original "
            "checkpoint as --base-source DIR"
        )
    quantised = sources.holder(f"{name}_packed", origin) is not None
    if quantised and sources.base is None:
        return f"{text}, only its packed form is; give the unquantised checkpoint as --base-source"
    return text
