"""The linears of one Gated DeltaNet layer of the 27B, each reading what the one before wrote."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import torch
from torch import Tensor

from ninfer.bench.linear_case import random_matrix, reference
from ninfer.errors import FormatError
from ninfer.formats import GroupedMatrix
from ninfer.ops.linear import fast
from ninfer.ops.linear.fast_plan import FEW
from ninfer.ops.linear.fragment_order import FragmentMatrix, to_fragments
from ninfer.ops.tolerance import BF16

_COPIES: Final = 3
# Name, format, rows, columns and whether gate and up rows meet, as the artifact stores them.
_PARTS: Final = (
    ("query_key", "Q4", 4096, 5120, False),
    ("value_z", "Q5", 12288, 5120, False),
    ("output", "Q5", 5120, 6144, False),
    ("gate_up", "Q4", 34816, 5120, True),
    ("down", "Q5", 5120, 17408, False),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One product of the chain: where its rows come from and how it ends."""

    name: str
    source: str
    residual: str | None
    gated: bool


# The mixer and the norms between are left out: only the linears are timed.
_STEPS: Final = (
    Step("query_key", "input", None, False),
    Step("value_z", "input", None, False),
    Step("output", "value_z", "input", False),
    Step("gate_up", "output", None, True),
    Step("down", "gate_up", "output", False),
)


@dataclass(frozen=True, slots=True)
class Chain:
    """Matrices by name, and several copies of them in fragment order."""

    matrices: dict[str, GroupedMatrix]
    weights: tuple[dict[str, FragmentMatrix], ...]
    x: Tensor

    @property
    def copies(self) -> int:
        """Layers that one round of calls goes through."""
        return len(self.weights)

    @property
    def bytes(self) -> int:
        """Bytes of one layer's weights."""
        return sum(weight.nbytes for weight in self.weights[0].values())

    def outputs(self, tokens: int) -> dict[str, Tensor]:
        """The input, and NaN where results go."""
        found = {"input": self.x[:tokens]}
        for step in _STEPS:
            rows = self.matrices[step.name].shape[0] // (2 if step.gated else 1)
            found[step.name] = torch.full((tokens, rows), float("nan")).to(self.x)
        return found

    def calls(
        self, tokens: int, *, dependent: bool, outputs: dict[str, Tensor] | None = None
    ) -> list[Callable[[], None]]:
        """The launches of all copies, layer after layer."""
        kept = outputs or self.outputs(tokens)
        return [
            partial(_launch, weights, step, kept, dependent)
            for weights in self.weights
            for step in _STEPS
        ]


def layer(device: torch.device) -> Chain:
    """The chain with random weights."""
    matrices, first = {}, {}
    for name, form, rows, columns, paired in _PARTS:
        matrices[name] = random_matrix(form, rows, columns, device)
        groups = fast.slice_groups(device, matrices[name].format, columns)
        first[name] = to_fragments(matrices[name], groups, paired=paired)
        fast.ready(first[name], (8, FEW))
    weights = [first]
    for _ in range(_COPIES - 1):
        weights.append({name: replace(w, words=w.words.clone()) for name, w in first.items()})
    generator = torch.Generator(device).manual_seed(2)
    x = torch.randn(FEW, 5120, device=device, generator=generator).bfloat16()
    torch.cuda.synchronize(device)
    return Chain(matrices, tuple(weights), x)


def check(chain: Chain, tokens: int) -> None:
    """Raise FormatError unless each step is right for its input, and early launches change no bit.

    Right is judged step by step: the float64 reference of a step reads the step's own input.
    """
    plain, early = chain.outputs(tokens), chain.outputs(tokens)
    for dependent, kept in ((False, plain), (True, early)):
        for call in chain.calls(tokens, dependent=dependent, outputs=kept):
            call()
    for step in _STEPS:
        found = BF16.violation(plain[step.name], _expected(chain, step, plain))
        if found is None and not torch.equal(plain[step.name], early[step.name]):
            found = "differs with dependent launches"
        if found is not None:
            raise FormatError(f"layer, {step.name} of {tokens} tokens: {found}; not timed")


def _expected(chain: Chain, step: Step, outputs: dict[str, Tensor]) -> Tensor:
    matrix = chain.matrices[step.name]
    found = reference(matrix, outputs[step.source][:, : matrix.shape[1]])
    if step.residual is not None:
        found = found + outputs[step.residual].double()
    if step.gated:
        gate, up = found.chunk(2, -1)
        found = torch.nn.functional.silu(gate) * up
    return found


def _launch(
    weights: dict[str, FragmentMatrix], step: Step, outputs: dict[str, Tensor], dependent: bool
) -> None:
    weight = weights[step.name]
    # value_z is read up to the width of the value part.
    x = outputs[step.source][:, : weight.shape[1]]
    residual = None if step.residual is None else outputs[step.residual]
    call = fast.Call(x, weight, outputs[step.name], residual, step.gated, dependent)
    fast.launch(call, wide=False)
