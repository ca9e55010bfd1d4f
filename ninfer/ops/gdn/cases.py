"""Input cases of Gated DeltaNet."""

from dataclasses import replace
from functools import partial
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.gdn import gated_delta_rule, gdn_gating
from ninfer.ops.precision import wide
from ninfer.ops.tensors import DeltaState

Pieces = tuple[tuple[int, int, bool], ...]


def _gating(count: int, heads: int, scale: float, inputs: Inputs) -> Call:
    arguments = {
        "a": inputs.normal(count, heads, scale=scale),
        "b": inputs.normal(count, heads, scale=scale),
        "a_log": inputs.normal(heads, dtype=torch.float32),
        "dt_bias": inputs.normal(heads, dtype=torch.float32),
    }
    return Call(arguments)


def _rule(
    new: tuple[int, ...],
    heads: tuple[int, int],
    dims: tuple[int, int],
    decay: float,
    inputs: Inputs,
) -> Call:
    return _windowed(tuple((count, 0, False) for count in new), 0, heads, dims, decay, inputs)


def _windowed(
    pieces: Pieces,
    window: int,
    heads: tuple[int, int],
    dims: tuple[int, int],
    decay: float,
    inputs: Inputs,
) -> Call:
    """Each piece: new rows, pending rows, whether the new ones are held."""
    new, pending, held = zip(*pieces, strict=True)
    slots, state_type = len(new) + 1, wide(inputs.normal(1))
    shared, key, value = (heads[0], dims[0]), dims[0], dims[1]
    rows = inputs.ragged(new, pending, held=held if any(held) else None)

    def unit(*shape: int) -> Tensor:
        return functional.normalize(inputs.normal(*shape), dim=-1)

    def gates(*shape: int) -> tuple[Tensor, Tensor]:
        g, beta = (inputs.uniform(*shape, heads[1], dtype=state_type) for _ in range(2))
        return g * -decay, beta

    decays, betas = gates(slots, window)
    state = DeltaState(
        matrix=inputs.normal(slots, heads[1], value, key, scale=0.3, dtype=state_type),
        keys=unit(slots, window, *shared),
        values=inputs.normal(slots, window, heads[1], value),
        decays=decays,
        betas=betas,
        pending=inputs.pending(rows, pending),
        arrivals=torch.zeros(slots, heads[0], dtype=torch.int32, device=inputs.device),
    )
    g, beta = gates(sum(new))
    arguments = {
        "q": unit(sum(new), *shared),
        "k": unit(sum(new), *shared),
        "v": inputs.normal(sum(new), heads[1], value),
        "g": g,
        "beta": beta,
        "state": state,
        "rows": rows,
    }
    return Call(arguments, changed=("state",))


def _narrow(inputs: Inputs) -> Call:
    """One row each with a 16-bit matrix; more rows would read what an oracle does not round."""
    call = _rule((1, 1, 1), (2, 4), (32, 16), 0.5, inputs)
    state = call.arguments["state"]
    if state.matrix.dtype is torch.float32:
        state = replace(state, matrix=state.matrix.to(torch.bfloat16))
    return Call(call.arguments | {"state": state}, changed=("state",))


MIXED: Final = (
    (3, 2, True),
    (5, 0, True),
    (0, 4, True),
    (65, 0, False),
    (1, 5, True),
    (2, 0, False),
)

CASES: Final = (
    Case(gdn_gating, "small", partial(_gating, 5, 3, 1.0)),
    Case(gdn_gating, "heads_48", partial(_gating, 2, 48, 3.0)),
    Case(gdn_gating, "beyond_softplus_threshold", partial(_gating, 7, 4, 30.0)),
    Case(gdn_gating, "no_rows", partial(_gating, 0, 4, 1.0)),
    Case(gated_delta_rule, "decode_real_heads", partial(_rule, (1, 1), (16, 48), (128, 128), 1.0)),
    Case(gated_delta_rule, "decode_bf16_state", _narrow),
    Case(gated_delta_rule, "chunk_minus_1", partial(_rule, (63,), (2, 4), (16, 8), 1.0)),
    Case(gated_delta_rule, "chunk", partial(_rule, (64,), (2, 4), (16, 8), 1.0)),
    Case(gated_delta_rule, "chunk_plus_1", partial(_rule, (65,), (2, 4), (16, 8), 1.0)),
    Case(gated_delta_rule, "many_chunks", partial(_rule, (577,), (1, 2), (16, 16), 0.1)),
    Case(gated_delta_rule, "ragged", partial(_rule, (3, 0, 130, 1), (2, 6), (32, 16), 1.0)),
    Case(gated_delta_rule, "steep_decay", partial(_rule, (128,), (1, 2), (8, 8), 60.0)),
    Case(gated_delta_rule, "no_decay", partial(_rule, (128,), (1, 1), (32, 8), 0.0)),
    Case(gated_delta_rule, "real_chunk", partial(_rule, (70,), (2, 4), (128, 128), 0.5)),
    Case(gated_delta_rule, "no_rows", partial(_rule, (0,), (1, 2), (8, 8), 1.0)),
    Case(
        gated_delta_rule,
        "held_real_heads",
        partial(_windowed, ((1, 1, True), (4, 2, True)), 4, (16, 48), (128, 128), 1.0),
    ),
    Case(gated_delta_rule, "held_and_not", partial(_windowed, MIXED, 5, (2, 6), (32, 16), 1.0)),
    Case(
        gated_delta_rule,
        "widest_window",
        partial(_windowed, ((63, 63, True),), 63, (1, 2), (16, 8), 0.5),
    ),
)
