"""Input cases of the dynamic convolution."""

from functools import partial
from typing import Final

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.dynamic_conv import dynamic_conv


def _conv(new: tuple[int, ...], taps: int, channels: int, groups: int, inputs: Inputs) -> Call:
    arguments = {
        "x": inputs.normal(sum(new), channels),
        "base": inputs.normal(taps, channels),
        "delta": inputs.normal(sum(new), taps, groups, scale=0.5),
        "rows": inputs.ragged(new),
    }
    return Call(arguments)


def _strided_delta(inputs: Inputs) -> Call:
    call = _conv((5, 3), 2, 48, 3, inputs)
    both = inputs.normal(8, 2, 2, 3)
    return Call({**call.arguments, "delta": both[:, 1]})


CASES: Final = (
    Case(dynamic_conv, "block", partial(_conv, (8,), 2, 5120, 320)),
    Case(dynamic_conv, "ragged", partial(_conv, (5, 0, 1, 16), 2, 64, 4)),
    Case(dynamic_conv, "three_taps", partial(_conv, (2, 7), 3, 12, 12)),
    Case(dynamic_conv, "one_tap", partial(_conv, (3,), 1, 16, 1)),
    Case(dynamic_conv, "strided_delta", _strided_delta),
    Case(dynamic_conv, "no_rows", partial(_conv, (0, 0), 2, 8, 2)),
)
