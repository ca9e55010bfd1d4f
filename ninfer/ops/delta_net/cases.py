"""Input cases of the whole Gated DeltaNet."""

from functools import partial
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.delta_net import delta_net
from ninfer.ops.tensors import ConvState, DeltaRows, DeltaState, DeltaWeights, RaggedRows

Pieces = tuple[tuple[int, int, bool], ...]
Sizes = tuple[int, int, int, int]  # Hk, Hv, Dk, Dv


def _mixed(
    pieces: Pieces, window: int, sizes: Sizes, width: int, decay: float, inputs: Inputs
) -> Call:
    """Each piece: new rows, pending rows, whether the new ones are held."""
    new, pending, held = zip(*pieces, strict=True)
    key_heads, heads, key, value = sizes
    rows = inputs.ragged(new, pending, held=held if any(held) else None)
    count = sum(new)
    # As projections give them: parts of wider rows.
    qk = inputs.normal(count, 2 * key_heads, key)
    vz = inputs.normal(count, 2 * heads, value)
    vz[:, heads:] = inputs.uniform(count, heads, value) * 4 - 2
    ab = inputs.normal(count, 2 * heads)
    channels = 2 * key_heads * key + heads * value
    weights = DeltaWeights(
        convolution=inputs.normal(width, channels, scale=0.5),
        a_log=inputs.uniform(heads, dtype=torch.float32) + decay,
        dt_bias=inputs.normal(heads, dtype=torch.float32),
        norm=inputs.normal(value) + 1,
    )
    counts = inputs.pending(rows, pending)
    conv = ConvState(
        inputs.normal(len(new) + 1, width - 1, channels),
        inputs.normal(len(new) + 1, window, channels),
        counts,
    )
    x = DeltaRows(
        query=qk[:, :key_heads],
        key=qk[:, key_heads:],
        value=vz[:, :heads],
        gate=vz[:, heads:],
        a=ab[:, :heads],
        b=ab[:, heads:],
    )
    arguments = {
        "x": x,
        "weights": weights,
        "conv": conv,
        "delta": _state(rows, counts, window, sizes, inputs),
        "rows": rows,
        # A norm magnifies how a short row was rounded before it; 16 bits get one that does less.
        "eps": 1e-2 if inputs.dtype.itemsize == 2 else 1e-6,
    }
    return Call(arguments, changed=("conv", "delta"))


def _state(
    rows: RaggedRows, pending: Tensor, window: int, sizes: Sizes, inputs: Inputs
) -> DeltaState:
    """A matrix of the activations' precision at least: what enters it has been rounded to that."""
    key_heads, heads, key, value = sizes
    slots = rows.state_slots.shape[0] + 1
    gates = torch.float64 if inputs.dtype is torch.float64 else torch.float32
    matrix = torch.bfloat16 if inputs.dtype.itemsize == 2 else gates
    decays, betas = (inputs.uniform(slots, window, heads, dtype=gates) for _ in range(2))
    return DeltaState(
        matrix=inputs.normal(slots, heads, value, key, scale=0.3, dtype=matrix),
        keys=functional.normalize(inputs.normal(slots, window, key_heads, key), dim=-1),
        values=inputs.normal(slots, window, heads, value),
        decays=decays * -2,
        betas=betas,
        pending=pending,
        arrivals=torch.zeros(slots, key_heads, dtype=torch.int32, device=inputs.device),
    )


def _plain(
    new: tuple[int, ...], sizes: Sizes, width: int = 4, decay: float = 0.0, *, inputs: Inputs
) -> Call:
    return _mixed(tuple((count, 0, False) for count in new), 0, sizes, width, decay, inputs)


def _case(name: str, build: partial[Call]) -> Case:
    # The convolution, the norms of q and k, the matrix and the result.
    return Case(delta_net, name, lambda inputs: build(inputs=inputs), roundings=4)


SMALL: Final = (2, 4, 32, 16)
REAL: Final = (16, 48, 128, 128)
TWO: Final = ((1, 1, True), (4, 2, True))
MIXED: Final = (
    (3, 2, True),
    (5, 0, True),
    (0, 4, True),
    (65, 0, False),
    (1, 5, True),
    (2, 0, False),
)

CASES: Final = (
    _case("decode", partial(_plain, (1, 1, 1), SMALL)),
    _case("decode_27b", partial(_plain, (1,), REAL)),
    _case("decode_35b", partial(_plain, (1, 1), (16, 32, 128, 128))),
    _case("one_head_each", partial(_plain, (2, 1), (2, 2, 16, 8))),
    _case("narrow_convolution", partial(_plain, (3, 1), (1, 2, 8, 40), 2)),
    _case("shorter_than_the_taps", partial(_plain, (2, 3, 4), SMALL)),
    _case("below_the_grid", partial(_plain, (63,), (1, 2, 8, 8), decay=1.0)),
    _case("chunk", partial(_plain, (64,), SMALL, decay=1.0)),
    _case("chunks_and_tail", partial(_plain, (130, 1, 65), SMALL, decay=1.0)),
    _case("chunk_35b", partial(_plain, (66,), (2, 4, 128, 128), decay=1.0)),
    _case("no_rows", partial(_plain, (0, 0), SMALL)),
    _case("held", partial(_mixed, ((1, 0, True), (1, 1, True)), 1, SMALL, 4, 0.0)),
    _case("held_group_of_three", partial(_mixed, TWO, 4, (1, 3, 128, 128), 4, 0.0)),
    _case("held_27b", partial(_mixed, TWO, 4, REAL, 4, 0.0)),
    _case("held_and_not", partial(_mixed, MIXED, 5, SMALL, 4, 1.0)),
    _case("widest_window", partial(_mixed, ((63, 63, True),), 63, (1, 2, 16, 8), 3, 1.0)),
)
