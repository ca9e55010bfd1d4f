"""Input cases of the elementwise ops."""

from functools import partial
from typing import Final

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.elementwise import add, sigmoid_mul, silu_mul

_SHAPES: Final = {"row": (1, 96), "odd": (5, 17), "heads": (3, 6, 256), "no_rows": (0, 8)}


def _pair(first: str, second: str, shape: tuple[int, ...], scale: float, inputs: Inputs) -> Call:
    return Call({first: inputs.normal(*shape, scale=scale), second: inputs.normal(*shape, scale=2)})


def _halves(inputs: Inputs) -> Call:
    both = inputs.normal(4, 48)
    return Call({"gate": both[:, :24], "up": both[:, 24:]})


CASES: Final = (
    *(
        Case(op, name, partial(_pair, first, second, shape, 4.0))
        for op, first, second in (
            (silu_mul, "gate", "up"),
            (sigmoid_mul, "x", "gate"),
            (add, "x", "y"),
        )
        for name, shape in _SHAPES.items()
    ),
    Case(silu_mul, "saturated", partial(_pair, "gate", "up", (4, 64), 200.0)),
    Case(silu_mul, "column_halves", _halves),
)
