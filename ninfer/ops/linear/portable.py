"""The matrix products by Triton kernels, on every card from sm_80 on and in the interpreter.

Weights come as they stay resident: grouped formats in fragment order, others row by row. An
activation row of bf16 meets its codes in bf16; other types meet them in float16 or float32, always
with sums in float32. All products of codes and activations are exact.
"""

from typing import Any, Final

import torch
import triton.language as tl
from torch import Tensor

from ninfer.errors import UnsupportedError
from ninfer.formats import Fp8RowMatrix, GroupedMatrix, Nvfp4Matrix
from ninfer.ops.launch import INTERPRETED, architecture, launch
from ninfer.ops.linear import kernels
from ninfer.ops.linear.fragment_order import FragmentMatrix
from ninfer.ops.linear.plan import BLOCK, FEW, Plan, plan
from ninfer.ops.tensors import Weight
from ninfer.ops.tuning import Shape

OPERANDS: Final = {
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.float32: tl.float32,
}
_SUM_BLOCK: Final = 512


def linear(x: Tensor, weight: Weight) -> Tensor:
    """See the contract."""
    return _product("linear", x, weight, kernels.STORE.value)


def linear_add(x: Tensor, weight: Weight, residual: Tensor) -> Tensor:
    """See the contract."""
    return _product("linear_add", x, weight, kernels.ADD.value, residual.contiguous())


def linear_swiglu(x: Tensor, gate_up: Weight) -> Tensor:
    """See the contract."""
    if isinstance(gate_up, FragmentMatrix) and not gate_up.paired:
        raise UnsupportedError(
            "linear_swiglu: gate_up has its gate rows in one half and its up rows in the other; "
            "pair them at load with ninfer.ops.resident(weight, paired=True)"
        )
    return _product("linear_swiglu", x, gate_up, kernels.SWIGLU.value)


def _product(
    op: str, x: Tensor, weight: Weight, end: int, residual: Tensor | None = None
) -> Tensor:
    """A product with its epilogue, through float32 partial sums where the columns are split."""
    operand = operand_type(op, x, weight)
    rows = weight.shape[0]
    width = rows // 2 if end == kernels.SWIGLU.value else rows
    # The interpreter cuts float32 down to bf16 where a card rounds.
    dtype = torch.float32 if INTERPRETED and x.dtype is torch.bfloat16 else x.dtype
    out = torch.empty((x.shape[0], width), dtype=dtype, device=x.device)
    if not out.numel():
        return out.to(x.dtype)
    is_paired = isinstance(weight, FragmentMatrix) and weight.paired
    shape = Shape(form_name(weight), rows, weight.shape[1], is_paired, x.shape[0] > FEW)
    chosen = plan(architecture(x), shape, x.shape[0])
    if chosen.splits == 1:
        _launch(x, weight, residual, out, chosen, end, operand)
    else:
        size = (chosen.splits, x.shape[0], rows)
        partial = torch.empty(size, dtype=torch.float32, device=x.device)
        _launch(x, weight, None, partial, chosen, kernels.PARTIAL.value, operand)
        grid = (-(-width // _SUM_BLOCK), x.shape[0])
        values = (partial, residual, out, x.shape[0], rows, chosen.splits)
        launch(kernels.sum_splits, grid, *values, END=end, BLOCK=_SUM_BLOCK, num_warps=4)
    return out.to(x.dtype)


def split_sums(op: str, x: Tensor, weight: Weight, chosen: Plan) -> Tensor:
    """The products [splits, T, N] of each split of the columns in float32, not yet added up.

    Raises UnsupportedError, in the name of `op`, for what has no kernel.
    """
    size = (chosen.splits, x.shape[0], weight.shape[0])
    partial = torch.empty(size, dtype=torch.float32, device=x.device)
    _launch(x, weight, None, partial, chosen, kernels.PARTIAL.value, operand_type(op, x, weight))
    return partial


def _launch(
    x: Tensor,
    weight: Weight,
    residual: Tensor | None,
    out: Tensor,
    chosen: Plan,
    end: int,
    operand: torch.dtype,
) -> None:
    count, (rows, columns) = x.shape[0], weight.shape
    options: dict[str, Any] = {
        "END": end,
        "R": chosen.half_rows,
        "TN": chosen.tokens,
        "STAGES": chosen.stages,
        "RAGGED": columns % BLOCK != 0,
        "OPERAND": OPERANDS[operand],
        "num_warps": chosen.warps,
        "num_stages": chosen.stages,
    }
    sizes = (count, rows, columns, x.stride(0))
    pairs = 8 * weight.tiles if isinstance(weight, FragmentMatrix) else -(-rows // 2)
    grid = (-(-count // chosen.tokens), -(-pairs // chosen.half_rows), chosen.splits)
    if isinstance(weight, FragmentMatrix):
        values = (x, weight.words.view(torch.int32), residual, out, *sizes)
        options |= _fragment_options(weight, chosen, operand)
        sizes_of_tiles = _tile_sizes(weight, chosen)
        launch(kernels.fragment_product, grid, *values, *sizes_of_tiles, **options)
        return
    stored, scales, divisor, form = row_planes(weight)
    values_of_rows = (x, stored, scales, residual, out, *sizes, stored.stride(0))
    options |= {"FORM": form, "PAIRED": end == kernels.SWIGLU.value, "COLUMNS": BLOCK}
    launch(kernels.row_product, grid, *values_of_rows, chosen.share, divisor, **options)


def _tile_sizes(weight: FragmentMatrix, chosen: Plan) -> tuple[int, ...]:
    """Groups, groups of a split, tiles, and the 16-byte units of a tile and of a slice."""
    slice_units = weight.words.shape[2] // 16
    groups = -(-weight.shape[1] // BLOCK)
    return groups, chosen.share, weight.tiles, weight.slices * slice_units, slice_units


def _fragment_options(weight: FragmentMatrix, chosen: Plan, operand: torch.dtype) -> dict[str, Any]:
    return {
        "BITS": weight.entry.bits,
        "SLICE": 0 if weight.slice_groups == -(-weight.shape[1] // BLOCK) else weight.slice_groups,
        "PAIRED": weight.paired,
        "UNROLL": chosen.unroll,
        "PLAIN": operand is not torch.bfloat16,
    }


def row_planes(weight: Weight) -> tuple[Tensor, Tensor | None, float, int]:
    """Numbers, scales and divisor of a row-major weight, and its form."""
    if isinstance(weight, Fp8RowMatrix):
        return weight.codes, weight.scales, 1.0, kernels.FP8.value
    if isinstance(weight, Nvfp4Matrix):
        return weight.codes, weight.scales, weight.divisor, kernels.NVFP4.value
    assert isinstance(weight, Tensor)
    return weight, None, 1.0, kernels.DENSE.value


def form_name(weight: Weight) -> str:
    if isinstance(weight, Tensor):
        return {torch.bfloat16: "BF16", torch.float16: "FP16"}.get(weight.dtype, "FP32")
    return weight.format


def operand_type(op: str, x: Tensor, weight: Weight) -> torch.dtype:
    """The type in which codes and activations meet. Raises UnsupportedError for what has none."""
    if x.dtype not in OPERANDS:
        raise UnsupportedError(f"{op}: no Triton kernel for activations of {x.dtype}; use bf16")
    if isinstance(weight, GroupedMatrix):
        raise UnsupportedError(
            f"{op}: {weight.format} comes in its stored planes; re-tile it at load with "
            "ninfer.ops.resident(weight)"
        )
    if isinstance(weight, Tensor):
        if weight.dtype not in OPERANDS or weight.stride(-1) != 1:
            seen = f"a dense weight of {weight.dtype} and strides {weight.stride()}"
            raise UnsupportedError(f"{op}: no Triton kernel for {seen}; use a contiguous bf16 one")
        if weight.dtype is not x.dtype:
            return torch.float32
    return torch.float32 if INTERPRETED else x.dtype
