"""Input cases of the normalisations."""

from functools import partial
from typing import Final

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.norm import add_rmsnorm, gated_rmsnorm, l2norm, rmsnorm

_EPS: Final = 1e-6
_SHAPES: Final = {
    "one_row": (1, 64),
    "hidden": (3, 5120),
    "head_256": (5, 2, 256),
    "head_128": (2, 3, 128),
    "odd": (7, 33),
    "no_rows": (0, 64),
}


def _rmsnorm(shape: tuple[int, ...], unit_offset: bool, scale: float, inputs: Inputs) -> Call:
    x, weight = inputs.normal(*shape, scale=scale), inputs.normal(shape[-1])
    return Call({"x": x, "weight": weight, "eps": _EPS, "unit_offset": unit_offset})


def _gated(shape: tuple[int, ...], inputs: Inputs) -> Call:
    x, gate = inputs.normal(*shape), inputs.normal(*shape, scale=4.0)
    return Call({"x": x, "gate": gate, "weight": inputs.normal(shape[-1]), "eps": _EPS})


def _add(shape: tuple[int, ...], inputs: Inputs) -> Call:
    x, residual = inputs.normal(*shape), inputs.normal(*shape, scale=8.0)
    weight = inputs.normal(shape[-1])
    arguments = {"x": x, "residual": residual, "weight": weight}
    return Call({**arguments, "eps": _EPS, "unit_offset": True})


def _l2(shape: tuple[int, ...], inputs: Inputs) -> Call:
    return Call({"x": inputs.normal(*shape), "eps": _EPS})


def _column_slice(inputs: Inputs) -> Call:
    x = inputs.normal(4, 3 * 64)[:, 64:128].view(4, 2, 32)
    return Call({"x": x, "weight": inputs.normal(32), "eps": _EPS, "unit_offset": True})


CASES: Final = (
    *(
        Case(rmsnorm, f"{name}_offset_{offset}", partial(_rmsnorm, s, offset, 1.0))
        for name, s in _SHAPES.items()
        for offset in (False, True)
    ),
    Case(rmsnorm, "large_values", partial(_rmsnorm, (2, 96), True, 1e4)),
    Case(rmsnorm, "below_epsilon", partial(_rmsnorm, (2, 96), False, 1e-5)),
    Case(rmsnorm, "column_slice", _column_slice),
    *(Case(gated_rmsnorm, name, partial(_gated, s)) for name, s in _SHAPES.items()),
    *(Case(add_rmsnorm, name, partial(_add, s)) for name, s in _SHAPES.items()),
    *(Case(l2norm, name, partial(_l2, s)) for name, s in _SHAPES.items()),
)
