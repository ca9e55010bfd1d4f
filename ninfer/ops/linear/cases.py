"""Input cases of the matrix products."""

from functools import partial
from typing import Final

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.linear import linear, linear_add, linear_swiglu

_PACKED: Final = (
    "Q4G64_F16S",
    "Q5G64_F16S",
    "Q6G64_F16S",
    "W8G32_F16S",
    "NVFP4",
    "FP8_E4M3FN_ROW_BF16S",
)


def _linear(form: str, count: int, rows: int, columns: int, inputs: Inputs) -> Call:
    x = inputs.normal(count, columns)
    return Call({"x": x, "weight": inputs.weight(form, rows, columns)})


def _add(form: str, count: int, rows: int, columns: int, inputs: Inputs) -> Call:
    call = _linear(form, count, rows, columns, inputs)
    return Call({**call.arguments, "residual": inputs.normal(count, rows, scale=3.0)})


def _swiglu(form: str, count: int, rows: int, columns: int, inputs: Inputs) -> Call:
    x = inputs.normal(count, columns)
    return Call({"x": x, "gate_up": inputs.weight(form, rows, columns)})


CASES: Final = (
    *(Case(linear, f"rows_{n}", partial(_linear, "BF16", n, 48, 80)) for n in (0, 1, 2, 17, 65)),
    *(Case(linear, form.lower(), partial(_linear, form, 3, 256, 192)) for form in _PACKED),
    Case(linear, "odd_width", partial(_linear, "Q5G64_F16S", 2, 37, 90)),
    Case(linear, "float32_weight", partial(_linear, "FP32", 4, 40, 72)),
    # More rows than one decoded block holds.
    Case(linear, "blocks_bf16", partial(_linear, "BF16", 2, 300, 5120)),
    Case(linear, "blocks_nvfp4", partial(_linear, "NVFP4", 2, 384, 5120)),
    Case(linear_add, "bf16", partial(_add, "BF16", 5, 48, 80)),
    Case(linear_add, "q6", partial(_add, "Q6G64_F16S", 1, 130, 128)),
    Case(linear_swiglu, "bf16", partial(_swiglu, "BF16", 5, 64, 80)),
    Case(linear_swiglu, "q4", partial(_swiglu, "Q4G64_F16S", 2, 260, 128)),
)
