"""Input cases of Gated DeltaNet."""

from functools import partial
from typing import Final

import torch
from torch.nn import functional

from ninfer.ops.case import Call, Case, Inputs
from ninfer.ops.gdn import gated_delta_rule, gdn_gating
from ninfer.ops.precision import wide


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
    count, (shared, own), (key, value) = sum(new), heads, dims
    state_type = wide(inputs.normal(1))
    arguments = {
        "q": functional.normalize(inputs.normal(count, shared, key), dim=-1),
        "k": functional.normalize(inputs.normal(count, shared, key), dim=-1),
        "v": inputs.normal(count, own, value),
        "g": inputs.uniform(count, own, dtype=state_type) * -decay,
        "beta": inputs.uniform(count, own, dtype=state_type),
        "state": inputs.normal(len(new) + 1, own, value, key, scale=0.3, dtype=state_type),
        "rows": inputs.ragged(new),
    }
    return Call(arguments, changed=("state",))


CASES: Final = (
    Case(gdn_gating, "small", partial(_gating, 5, 3, 1.0)),
    Case(gdn_gating, "heads_48", partial(_gating, 2, 48, 3.0)),
    Case(gdn_gating, "beyond_softplus_threshold", partial(_gating, 7, 4, 30.0)),
    Case(gdn_gating, "no_rows", partial(_gating, 0, 4, 1.0)),
    Case(gated_delta_rule, "decode_real_heads", partial(_rule, (1, 1), (16, 48), (128, 128), 1.0)),
    Case(gated_delta_rule, "chunk_minus_1", partial(_rule, (63,), (2, 4), (16, 8), 1.0)),
    Case(gated_delta_rule, "chunk", partial(_rule, (64,), (2, 4), (16, 8), 1.0)),
    Case(gated_delta_rule, "chunk_plus_1", partial(_rule, (65,), (2, 4), (16, 8), 1.0)),
    Case(gated_delta_rule, "many_chunks", partial(_rule, (577,), (1, 2), (16, 16), 0.1)),
    Case(gated_delta_rule, "ragged", partial(_rule, (3, 0, 130, 1), (2, 6), (32, 16), 1.0)),
    Case(gated_delta_rule, "steep_decay", partial(_rule, (128,), (1, 2), (8, 8), 60.0)),
    Case(gated_delta_rule, "no_decay", partial(_rule, (128,), (1, 1), (32, 8), 0.0)),
    Case(gated_delta_rule, "real_chunk", partial(_rule, (70,), (2, 4), (128, 128), 0.5)),
    Case(gated_delta_rule, "no_rows", partial(_rule, (0,), (1, 2), (8, 8), 1.0)),
)
