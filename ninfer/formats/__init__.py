"""Numeric formats: the table of names (no torch) and the codecs (loaded when first used)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ninfer.formats.registry import (
    FORMATS,
    KV_FORMATS,
    KVFormat,
    NumericFormat,
    kv_format,
    numeric_format,
)

if TYPE_CHECKING:
    from ninfer.formats.codec import dequantise, quantise
    from ninfer.formats.direct import DIRECT_DTYPES, to_direct
    from ninfer.formats.join import join_rows
    from ninfer.formats.packed import Fp8RowMatrix, GroupedMatrix, Nvfp4Matrix, PackedMatrix

__all__ = [
    "DIRECT_DTYPES",
    "FORMATS",
    "KV_FORMATS",
    "Fp8RowMatrix",
    "GroupedMatrix",
    "KVFormat",
    "NumericFormat",
    "Nvfp4Matrix",
    "PackedMatrix",
    "dequantise",
    "join_rows",
    "kv_format",
    "numeric_format",
    "quantise",
    "to_direct",
]

_LAZY = {
    "DIRECT_DTYPES": "direct",
    "to_direct": "direct",
    "dequantise": "codec",
    "join_rows": "join",
    "quantise": "codec",
    "Fp8RowMatrix": "packed",
    "GroupedMatrix": "packed",
    "Nvfp4Matrix": "packed",
    "PackedMatrix": "packed",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ninfer.formats.{_LAZY[name]}"), name)
