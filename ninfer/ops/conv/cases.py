"""Input cases of the causal convolution."""

from functools import partial
from typing import Final

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.conv import causal_conv_silu
from ninfer.ops.tensors import ConvState

Pieces = tuple[tuple[int, int, bool], ...]


def _conv(new: tuple[int, ...], width: int, channels: int, inputs: Inputs) -> Call:
    return _windowed(tuple((count, 0, False) for count in new), 0, width, channels, inputs)


def _windowed(pieces: Pieces, window: int, width: int, channels: int, inputs: Inputs) -> Call:
    """Each piece: new rows, pending rows, whether the new ones are held."""
    new, pending, held = zip(*pieces, strict=True)
    rows = inputs.ragged(new, pending, held=held if any(held) else None)
    state = ConvState(
        inputs.normal(len(new) + 1, width - 1, channels),
        inputs.normal(len(new) + 1, window, channels),
        inputs.pending(rows, pending),
    )
    arguments = {
        "x": inputs.normal(sum(new), channels),
        "weight": inputs.normal(width, channels, scale=0.5),
        "state": state,
        "rows": rows,
    }
    return Call(arguments, changed=("state",))


MIXED: Final = (
    (3, 2, True),
    (5, 0, True),
    (0, 4, True),
    (70, 3, False),
    (1, 5, True),
    (2, 0, False),
)

CASES: Final = (
    Case(causal_conv_silu, "decode", partial(_conv, (1, 1, 1), 4, 96)),
    Case(causal_conv_silu, "shorter_than_window", partial(_conv, (2, 1, 3, 4), 4, 10240)),
    Case(causal_conv_silu, "prefill", partial(_conv, (131,), 4, 64)),
    Case(causal_conv_silu, "ragged", partial(_conv, (5, 0, 64, 2), 4, 33)),
    Case(causal_conv_silu, "narrow", partial(_conv, (3, 1), 2, 16)),
    Case(causal_conv_silu, "no_rows", partial(_conv, (0, 0), 4, 8)),
    Case(causal_conv_silu, "held", partial(_windowed, ((1, 0, True), (1, 1, True)), 1, 4, 96)),
    Case(causal_conv_silu, "held_and_not", partial(_windowed, MIXED, 5, 4, 33)),
    Case(causal_conv_silu, "widest_window", partial(_windowed, ((63, 63, True),), 63, 2, 16)),
)
