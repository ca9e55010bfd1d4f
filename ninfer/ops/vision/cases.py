"""Input cases of the vision ops."""

from functools import partial
from typing import Final

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.vision import (
    Activation,
    grid_positions,
    layer_norm,
    linear_bias,
    rope_2d,
    slice_attention,
)

_PRODUCTS: Final[tuple[tuple[str, Activation], ...]] = (
    ("BF16", "none"),
    ("FP32", "gelu_erf"),
    ("Q4G64_F16S", "gelu_tanh"),
    ("Q5G64_F16S", "none"),
    ("Q6G64_F16S", "none"),
    ("W8G32_F16S", "gelu_erf"),
)


def _linear(form: str, rows: int, columns: int, act: Activation, inputs: Inputs) -> Call:
    arguments = {
        "x": inputs.normal(5, columns, scale=2.0),
        "weight": inputs.weight(form, rows, columns),
        "bias": inputs.normal(rows),
        "activation": act,
    }
    return Call(arguments)


def _norm(shape: tuple[int, ...], offset: float, inputs: Inputs) -> Call:
    x = inputs.normal(*shape) + offset
    weight, bias = inputs.normal(shape[-1]), inputs.normal(shape[-1])
    return Call({"x": x, "weight": weight, "bias": bias, "eps": 1e-6})


def _grid(side: int, grid: tuple[int, int, int], merge: int, inputs: Inputs) -> Call:
    table = inputs.normal(side * side, 24)
    return Call({"table": table, "grid": grid, "merge": merge, "dtype": inputs.dtype})


def _rope(count: int, heads: int, dim: int, top: int, inputs: Inputs) -> Call:
    x, positions = inputs.normal(count, heads, dim), inputs.integers(0, top, 2, count)
    return Call({"x": x, "positions": positions, "theta": 1e4})


def _attention(count: int, length: int, heads: int, dim: int, inputs: Inputs) -> Call:
    q, k, v = (inputs.normal(count, heads, dim) for _ in range(3))
    return Call({"q": q, "k": k, "v": v, "length": length, "scale": dim**-0.5})


def _fused_parts(inputs: Inputs) -> Call:
    """Queries, keys and values as column ranges of one product, as a tower hands them over."""
    parts = inputs.normal(12, 3 * 48).unflatten(-1, (3, 2, 24))
    q, k, v = parts.unbind(1)
    return Call({"q": q, "k": k, "v": v, "length": 4, "scale": 0.2})


CASES: Final = (
    *(
        Case(linear_bias, f"{form.lower()}_{act}", partial(_linear, form, 33, 128, act))
        for form, act in _PRODUCTS
    ),
    Case(linear_bias, "patch_row", partial(_linear, "Q6G64_F16S", 64, 1536, "none")),
    *(
        Case(layer_norm, name, partial(_norm, shape, 0.5))
        for name, shape in (("width_1152", (3, 1152)), ("odd", (2, 3, 33)), ("no_rows", (0, 8)))
    ),
    Case(layer_norm, "far_from_zero", partial(_norm, (2, 64), 30.0)),
    *(
        Case(grid_positions, name, partial(_grid, side, grid, merge))
        for name, side, grid, merge in (
            ("whole_table", 6, (1, 6, 6), 2),
            ("larger", 4, (1, 10, 6), 2),
            ("smaller", 48, (1, 4, 2), 2),
            ("video", 5, (3, 2, 8), 2),
            ("one_patch", 5, (1, 1, 1), 1),
        )
    ),
    Case(rope_2d, "head_72", partial(_rope, 9, 16, 72, 256)),
    Case(rope_2d, "one_pair_each", partial(_rope, 3, 2, 4, 2048)),
    Case(rope_2d, "no_rows", partial(_rope, 0, 2, 72, 16)),
    Case(slice_attention, "one_slice", partial(_attention, 20, 20, 2, 72)),
    Case(slice_attention, "three_slices", partial(_attention, 24, 8, 3, 16)),
    Case(slice_attention, "single_rows", partial(_attention, 5, 1, 2, 8)),
    Case(slice_attention, "no_rows", partial(_attention, 0, 4, 2, 8)),
    Case(slice_attention, "fused_parts", _fused_parts),
)
