"""Fields of quantised checkpoints in the compressed-tensors form, and what they must agree on.

An NVFP4 matrix `X.weight` is stored as `X.weight_packed` (two codes a byte), `X.weight_scale` (one
E4M3FN scale for 16 columns), `X.weight_global_scale` (the divisor) and `X.input_global_scale` (the
divisor of its input); an FP8 matrix as `X.weight` and `X.weight_scale` (one multiplier a row).
"""

from collections.abc import Iterable
from math import isfinite, prod
from typing import Final

from ninfer.artifact import TensorEntry
from ninfer.convert.checkpoint import Sources
from ninfer.convert.source_map import InputDivisor, Rows, Stack
from ninfer.convert.source_rows import FLOATS, expect, located
from ninfer.errors import CheckpointError
from ninfer.formats.registry import numeric_format

E4M3: Final = "F8_E4M3"
# FP8 matrices that a conversion encodes; all others must be FP8 in the source.
ENCODED_FP8: Final = ("text/token_embedding", "text/output_head")


def check_stack(sources: Sources, entry: TensorEntry, source: Stack) -> set[str]:
    """Refuse pieces that cannot make the object; returns the source tensors of them all.

    Raises CheckpointError naming the tensor and its file.
    """
    kind = numeric_format(entry.format).kind
    names = set()
    for piece in source.pieces:
        match kind:
            case "fp4":
                names |= _check_nvfp4(sources, piece, source.origin)
            case "fp8" if entry.name not in ENCODED_FP8 or is_fp8(sources, source):
                names |= _check_fp8(sources, piece, source.origin)
            case _:
                # Words are copied, or widened, without rounding; encoders take any float.
                exact = entry.format == "BF16"
                _check(sources, piece.tensor, piece.shape, ["BF16"] if exact else FLOATS, source)
                names.add(piece.tensor)
    if kind == "fp4":
        weight_divisor(sources, source)
    return names


def is_fp8(sources: Sources, source: Stack) -> bool:
    """Whether the first piece is stored as FP8 codes."""
    name = source.pieces[0].tensor
    return located(sources, name, source.origin)[1].dtype == E4M3


def weight_divisor(sources: Sources, source: Stack) -> float:
    """The divisor that all pieces of an NVFP4 matrix share. Raises CheckpointError otherwise."""
    names = dict.fromkeys(f"{piece.tensor}_global_scale" for piece in source.pieces)
    return _shared(sources, names, source.origin)


def input_name(tensor: str) -> str:
    """The tensor that holds the input divisor of an NVFP4 matrix."""
    return f"{tensor.removesuffix('weight')}input_global_scale"


def input_divisor(sources: Sources, source: InputDivisor) -> float:
    """The input divisor that all matrices of one input share. Raises CheckpointError otherwise."""
    return _shared(sources, map(input_name, source.tensors), source.origin)


def _check(
    sources: Sources, name: str, shape: tuple[int, ...], dtypes: Iterable[str], source: Stack
) -> None:
    expect(located(sources, name, source.origin)[1], shape, tuple(dtypes))


def _check_nvfp4(sources: Sources, piece: Rows, origin: str) -> set[str]:
    rows, columns = prod(piece.shape[:-1]), piece.shape[-1]
    fields = {
        "_packed": ((rows, columns // 2), ["U8"]),
        "_scale": ((rows, columns // 16), [E4M3]),
    }
    for suffix, (shape, dtypes) in fields.items():
        expect(located(sources, piece.tensor + suffix, origin)[1], shape, dtypes)
    return {piece.tensor + suffix for suffix in (*fields, "_global_scale")}


def _check_fp8(sources: Sources, piece: Rows, origin: str) -> set[str]:
    scale = f"{piece.tensor}_scale"
    expect(located(sources, piece.tensor, origin)[1], piece.shape, [E4M3])
    expect(located(sources, scale, origin)[1], (piece.shape[0], 1), ["BF16"])
    return {piece.tensor, scale}


def _shared(sources: Sources, names: Iterable[str], origin: str) -> float:
    found = {name: _scalar(sources, name, origin) for name in names}
    first, *others = found
    for name in others:
        if found[name] != found[first]:
            raise CheckpointError(
                f"tensors {first!r} and {name!r} hold {found[first]} and {found[name]}; one stored "
                "matrix has one divisor, so they must be equal"
            )
    return found[first]


def _scalar(sources: Sources, name: str, origin: str) -> float:
    holder, tensor = located(sources, name, origin)
    if prod(tensor.shape) != 1:
        raise CheckpointError(f"{tensor} has shape {list(tensor.shape)}; expected one number")
    expect(tensor, tensor.shape, ["F32"])
    value = float(holder.read(name))
    if not (isfinite(value) and value > 0):
        raise CheckpointError(f"{tensor} is {value}; a divisor must be finite and greater than 0")
    return value
