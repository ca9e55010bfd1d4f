"""Input cases of the causal convolution."""

from functools import partial
from typing import Final

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.conv import causal_conv_silu


def _conv(new: tuple[int, ...], width: int, channels: int, inputs: Inputs) -> Call:
    arguments = {
        "x": inputs.normal(sum(new), channels),
        "weight": inputs.normal(width, channels, scale=0.5),
        "state": inputs.normal(len(new) + 1, width - 1, channels),
        "rows": inputs.ragged(new),
    }
    return Call(arguments, changed=("state",))


CASES: Final = (
    Case(causal_conv_silu, "decode", partial(_conv, (1, 1, 1), 4, 96)),
    Case(causal_conv_silu, "shorter_than_window", partial(_conv, (2, 1, 3, 4), 4, 10240)),
    Case(causal_conv_silu, "prefill", partial(_conv, (131,), 4, 64)),
    Case(causal_conv_silu, "ragged", partial(_conv, (5, 0, 64, 2), 4, 33)),
    Case(causal_conv_silu, "narrow", partial(_conv, (3, 1), 2, 16)),
    Case(causal_conv_silu, "no_rows", partial(_conv, (0, 0), 4, 8)),
)
