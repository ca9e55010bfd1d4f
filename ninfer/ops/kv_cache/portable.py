"""KV cache rows by Triton kernels: encode and scatter, gather and decode."""

from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.formats.kv import kv_format
from ninfer.ops.kv_cache import kernels
from ninfer.ops.launch import launch
from ninfer.ops.tensors import PagedKV

_TYPES: Final = (torch.bfloat16, torch.float16, torch.float32)
_FORMS: Final = MappingProxyType(
    {
        "fp32": kernels.FP32,
        "bf16": kernels.BF16,
        "int8": kernels.INT8,
        "fp8": kernels.FP8,
        "int4": kernels.INT4,
    }
)


def write_kv(keys: Tensor, values: Tensor, cache: PagedKV, slots: Tensor) -> None:
    """See the contract."""
    if keys.dtype not in _TYPES:
        raise UnsupportedError(f"write_kv: no Triton kernel for keys of {keys.dtype}; use bf16")
    count, heads, dim = keys.shape
    if not keys.numel():
        return
    options = _options(cache)
    group = options["GROUP"]
    launch(
        kernels.write_rows,
        (count, heads),
        keys,
        values,
        *_planes(cache),
        slots,
        *keys.stride()[:2],
        *values.stride()[:2],
        cache.keys.shape[0] * cache.page_size,
        **options,
        G=_power(-(-dim // group)),
        N=_power(group),
        num_warps=1 if dim <= 256 else 4,
    )


def read_kv(cache: PagedKV, slots: Tensor) -> tuple[Tensor, Tensor]:
    """See the contract."""
    count, heads, dim = slots.shape[0], cache.keys.shape[2], cache.head_dim
    shape = (count, heads, dim)
    keys, values = (torch.empty(shape, dtype=torch.float32, device=slots.device) for _ in range(2))
    if keys.numel():
        launch(
            kernels.read_rows,
            (count, heads),
            *_planes(cache),
            slots,
            keys,
            values,
            **_options(cache),
            N=_power(dim),
            num_warps=1 if dim <= 256 else 4,
        )
    return keys, values


def _planes(cache: PagedKV) -> tuple[Tensor | None, ...]:
    """Words of keys and values, bf16 as integers, and their scales."""
    words = (
        x.view(torch.int16) if x.dtype is torch.bfloat16 else x for x in (cache.keys, cache.values)
    )
    return (*words, cache.key_scales, cache.value_scales)


def _options(cache: PagedKV) -> dict[str, Any]:
    entry, dim = kv_format(cache.format), cache.head_dim
    return {
        "DIM": dim,
        "GROUP": entry.group or dim,
        "GROUPS": entry.scale_groups(dim),
        "FORM": _FORMS[cache.format].value,
        "enable_fp_fusion": False,
    }


def _power(count: int) -> int:
    """The least power of two that is not less."""
    return 1 << (count - 1).bit_length()
