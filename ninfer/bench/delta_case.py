"""The Gated DeltaNet of the 27B to be measured: steps of few rows, prefills, and their parts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from ninfer import ops
from ninfer.bench.replay import copies_for
from ninfer.errors import FormatError
from ninfer.lazy import lazy_exports
from ninfer.ops.compare import compare
from ninfer.ops.delta_net.cases import CASES
from ninfer.ops.dispatch import using
from ninfer.ops.tensors import (
    ConvState,
    DeltaRows,
    DeltaState,
    DeltaWeights,
    RaggedRows,
)
from ninfer.ops.tolerance import BF16, FLOAT32

# The ops that are measured; their portable form is.
FAMILY: Final = ("causal_conv_silu", "gdn_gating", "gated_delta_rule", "delta_net")
KEY_HEADS, HEADS, WIDTH, TAPS, WINDOW = 16, 48, 128, 4, 16
CHANNELS: Final = (2 * KEY_HEADS + HEADS) * WIDTH
# Where steps stand in their sequences, and how far one of several rows runs ahead.
_POSITION: Final = 640
_EPS: Final = 1e-6
_fla = lazy_exports("ninfer.bench", {"chunk_gated_delta_rule": "fla.ops.gated_delta_rule"})
_CHECKED: Final = ("decode_27b", "held_27b", "chunk_35b")
# V and key heads of those cases, where they are not those above.
CHECKED_HEADS: Final = ((4, 2),)


@dataclass(frozen=True, slots=True)
class Mixer:
    """Random inputs, weights and state slots of one layer."""

    weights: DeltaWeights
    conv: ConvState
    delta: DeltaState
    device: torch.device

    @classmethod
    def made(cls, device: torch.device) -> "Mixer":
        """With as many state slots as push each other out of every cache."""
        slots = copies_for(HEADS * WIDTH * WIDTH * 4)
        pending = torch.zeros(slots, dtype=torch.int64, device=device)

        def noise(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
            return torch.randn(shape, device=device).to(dtype)

        gates = partial(torch.rand, slots, WINDOW, HEADS, device=device)
        return cls(
            DeltaWeights(
                noise(TAPS, CHANNELS),
                noise(HEADS, dtype=torch.float32),
                noise(HEADS, dtype=torch.float32),
                noise(WIDTH),
            ),
            ConvState(noise(slots, TAPS - 1, CHANNELS), noise(slots, WINDOW, CHANNELS), pending),
            DeltaState(
                torch.zeros(slots, HEADS, WIDTH, WIDTH, device=device),
                functional.normalize(noise(slots, WINDOW, KEY_HEADS, WIDTH), dim=-1),
                noise(slots, WINDOW, HEADS, WIDTH),
                -gates(),
                gates(),
                pending,
                torch.zeros(slots, KEY_HEADS, dtype=torch.int32, device=device),
            ),
            device,
        )

    @property
    def slots(self) -> int:
        """State slots."""
        return self.conv.inputs.shape[0]

    def projections(self, count: int) -> DeltaRows:
        """Random projections of `count` rows, parts of wider rows as the model has them."""

        def noise(*shape: int) -> Tensor:
            return torch.randn(count, *shape, device=self.device).bfloat16()

        shared, own = noise(2 * KEY_HEADS, WIDTH), noise(2 * HEADS, WIDTH)
        query, key = shared.chunk(2, 1)
        value, gate = own.chunk(2, 1)
        return DeltaRows(query, key, value, gate, noise(HEADS), noise(HEADS))

    def rows(self, count: int, slot: int, *, start: int, held: bool = False) -> RaggedRows:
        """`count` rows of one sequence behind its first `start`."""

        def integers(*values: int) -> Tensor:
            return torch.tensor(values, device=self.device)

        return RaggedRows(
            integers(0, count),
            integers(start + count),
            integers(0).unsqueeze(0),
            integers(slot),
            torch.tensor([held], device=self.device),
            longest=count,
        )

    def steps(self, count: int) -> list[Callable[[], object]]:
        """A step of `count` rows in every state slot: several are a window behind a full one."""
        x, held = self.projections(count), count > 1
        self.delta.pending.fill_(count if held else 0)
        return [
            partial(
                ops.delta_net,
                *(x, self.weights, self.conv, self.delta),
                self.rows(count, slot, start=_POSITION, held=held),
                eps=_EPS,
            )
            for slot in range(self.slots)
        ]

    def prefills(self, count: int) -> list[Callable[[], object]]:
        """The same for the first `count` rows of a sequence, in a few slots."""
        x = self.projections(count)
        self.delta.pending.zero_()
        return [
            partial(
                ops.delta_net,
                *(x, self.weights, self.conv, self.delta),
                self.rows(count, slot, start=0),
                eps=_EPS,
            )
            for slot in range(4)
        ]

    def rule(self, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Inputs q, k, v, g, beta of the rule alone."""
        x = self.projections(count)
        q, k = (functional.normalize(part.float(), dim=-1).bfloat16() for part in (x.query, x.key))
        g, beta = ops.gdn_gating(x.a, x.b, self.weights.a_log, self.weights.dt_bias)
        return q, k, x.value, g, beta

    def convolutions(self, count: int) -> list[Callable[[], object]]:
        """The convolution alone."""
        x = torch.randn(count, CHANNELS, device=self.device).bfloat16()
        self.conv.pending.zero_()
        return [
            partial(
                ops.causal_conv_silu,
                *(x, self.weights.convolution, self.conv),
                self.rows(count, slot, start=0),
            )
            for slot in range(4)
        ]


def state_bytes(count: int) -> int:
    """Bytes that a step must move: the matrix there and back, rows in and out."""
    matrix = 2 * HEADS * WIDTH * WIDTH * 4
    rows = count * 2 * (2 * KEY_HEADS + 3 * HEADS) * WIDTH
    return matrix + rows + 2 * (TAPS + 2 * (TAPS - 1)) * CHANNELS


def check_steps(device: torch.device) -> None:
    """Raise FormatError unless cases of these sizes meet their criterion on this card."""
    for case in CASES:
        if case.name in _CHECKED and (found := compare(case, torch.bfloat16, device)):
            raise FormatError(f"{found[0]}; not timed")


def check_prefill(mixer: Mixer, count: int) -> None:
    """Raise FormatError unless the rule over `count` rows follows float64, state included."""
    parts = mixer.rule(count)
    slot = mixer.slots - 1
    mixer.delta.pending.zero_()
    mixer.delta.matrix[slot] = 0
    exact = replace(
        mixer.delta,
        matrix=mixer.delta.matrix[slot : slot + 1].double(),
        keys=mixer.delta.keys[:1].double(),
        values=mixer.delta.values[:1].double(),
        decays=mixer.delta.decays[:1].double(),
        betas=mixer.delta.betas[:1].double(),
        pending=mixer.delta.pending[:1],
        arrivals=None,
    )
    out = ops.gated_delta_rule(*parts, mixer.delta, mixer.rows(count, slot, start=0))
    with using("reference"):
        q, k, v, g, beta = (x.double() for x in parts)
        want = ops.gated_delta_rule(q, k, v, g, beta, exact, mixer.rows(count, 0, start=0))
    found = BF16.violation(out, want)
    found = found or FLOAT32.violation(mixer.delta.matrix[slot], exact.matrix[0])
    if found is not None:
        raise FormatError(f"gated_delta_rule of {count} rows: {found}; not timed")


def rule_calls(mixer: Mixer, count: int) -> list[Callable[[], object]]:
    """The rule alone over the first `count` rows of a sequence, in a few slots."""
    parts = mixer.rule(count)
    return [
        partial(ops.gated_delta_rule, *parts, mixer.delta, mixer.rows(count, slot, start=0))
        for slot in range(4)
    ]


def fla_prefill(mixer: Mixer, count: int) -> Callable[[], object] | None:
    """The rule by flash-linear-attention, q and k repeated for each V head; None without it."""
    if find_spec("fla") is None:
        return None
    function: Any = _fla("chunk_gated_delta_rule")
    q, k, v, g, beta = (x.unsqueeze(0) for x in mixer.rule(count))
    q, k = (x.repeat_interleave(HEADS // KEY_HEADS, dim=2) for x in (q, k))
    return partial(function, q, k, v, g, beta, output_final_state=True)
