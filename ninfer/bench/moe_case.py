"""A mixture of experts of the 35B to be measured: random weights, many inputs, and its check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import torch
from torch import Tensor

from ninfer.bench.linear_case import PORTABLE, random_matrix
from ninfer.errors import FormatError
from ninfer.ops.linear.fragment_order import groups_of, to_fragments
from ninfer.ops.moe import fast, portable, reference
from ninfer.ops.moe.fast_plan import DownPlan, GateUpPlan
from ninfer.ops.tensors import ExpertWeights, SharedExpert, Weight
from ninfer.ops.tolerance import BF16

MOST: Final = 64
CUDA: Final = "CUDA"
Plans = Callable[[int], tuple[GateUpPlan, DownPlan]]
# Calls in a row, each with experts of its own: together they are far larger than any cache.
_INPUTS: Final = 24
_ROUTER_COPIES: Final = 450
# Logits of two experts that are nearer than this may change places between two orders of sums.
_NEAR: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Mixture:
    """One layer in its stored and its resident form, and inputs of up to 64 rows."""

    routers: tuple[Tensor, ...]  # copies of [E + 1, D]
    stored: tuple[ExpertWeights, SharedExpert]
    held: tuple[ExpertWeights, SharedExpert]
    inputs: tuple[Tensor, ...]  # [64, D] each
    top_k: int
    tier: str = PORTABLE
    plans: Plans | None = None  # other sizes than the CUDA form's own, by token count

    def routed(self, x: Tensor, copy: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, ids and the shared expert's score."""
        if self.tier == CUDA:
            return fast.route_experts(x, self.routers[copy], self.top_k)
        return portable.route_experts(x, self.routers[copy], self.top_k)

    def mixed(self, x: Tensor, weights: Tensor, ids: Tensor, score: Tensor) -> Tensor:
        """The experts."""
        if self.tier != CUDA:
            return portable.sparse_moe(x, weights, ids, *self.held, score)
        plans = None if self.plans is None else self.plans(x.shape[0])
        return fast.sparse_moe(x, weights, ids, *self.held, score, plans)

    def layer(self, x: Tensor, copy: int = 0) -> Tensor:
        """Router and experts."""
        return self.mixed(x, *self.routed(x, copy))

    def layer_calls(self, tokens: int) -> list[Callable[[], object]]:
        """The whole layer on each input."""
        return [partial(self.layer, x[:tokens], i) for i, x in enumerate(self.inputs)]

    def expert_calls(self, tokens: int) -> list[Callable[[], object]]:
        """The experts alone, as the router has chosen them before."""
        calls: list[Callable[[], object]] = []
        for x in self.inputs:
            calls.append(partial(self.mixed, x[:tokens], *self.routed(x[:tokens])))
        return calls

    def router_calls(self, tokens: int) -> list[Callable[[], object]]:
        """The router alone, on copies of its weight."""
        x = self.inputs[0][:tokens]
        return [partial(self.routed, x, copy) for copy in range(len(self.routers))]

    def distinct(self, tokens: int) -> float:
        """Experts that a call reads, in the mean of the inputs."""
        counts = [len(self.routed(x[:tokens])[1].unique()) for x in self.inputs]
        return sum(counts) / len(counts)

    def expert_bytes(self, tokens: int) -> float:
        """Bytes that the experts of a call must be read with, in the mean of the inputs."""
        experts, shared = self.held
        one = (experts.gate_up.nbytes + experts.down.nbytes) / experts.count
        return one * self.distinct(tokens) + shared.gate_up.nbytes + shared.down.nbytes

    @property
    def router_bytes(self) -> int:
        """Bytes of the router."""
        return self.routers[0].nbytes


def mixture(
    device: torch.device, experts: int = 256, top_k: int = 8, dim: int = 2048, inner: int = 512
) -> Mixture:
    """A layer in the forms of the 35B: Q4 gate/up, Q5 down, shared expert in W8, router in bf16."""
    weights = (
        random_matrix("Q4", experts * 2 * inner, dim, device),
        random_matrix("Q5", experts * dim, inner, device),
        random_matrix("W8", 2 * inner, dim, device),
        random_matrix("W8", dim, inner, device),
    )
    held = [to_fragments(weight, groups_of(weight.shape[1])) for weight in weights]
    generator = torch.Generator(device).manual_seed(3)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator)

    router = (noise(experts + 1, dim) * dim**-0.5).bfloat16()
    return Mixture(
        routers=tuple(router.clone() for _ in range(max(_ROUTER_COPIES, _INPUTS))),
        stored=_views(weights, experts),
        held=_views(held, experts),
        inputs=tuple(noise(MOST, dim).bfloat16() for _ in range(_INPUTS)),
        top_k=top_k,
    )


def by_cuda(case: Mixture, plans: Plans | None = None) -> Mixture:
    """The same layer by the CUDA form, with other sizes than its own if given.

    Raises UnsupportedError when its kernels can be neither found nor compiled.
    """
    layer = fast.layer_of(case.top_k, *case.held)
    assert layer is not None
    fast.ready(case.inputs[0].device, layer)
    return replace(case, tier=CUDA, plans=plans)


def check(case: Mixture, tokens: tuple[int, ...]) -> None:
    """Raise FormatError unless router and layer are right for each token count.

    Right: within the bf16 criterion of float64, and bit for bit the rows that 64 tokens give. Two
    inputs are looked at, one for the counts in turn and the other for 64 tokens.
    """
    for place, count in enumerate((*tokens, MOST)):
        x = case.inputs[place % 2][:count]
        found = _wrong_routing(case, x) or _wrong_layer(case, x, case.inputs[place % 2])
        if found is not None:
            raise FormatError(f"mixture of experts {case.tier}, {count} tokens: {found}; not timed")


def _wrong_routing(case: Mixture, x: Tensor) -> str | None:
    weights, ids, score = case.routed(x)
    wide = x.double() @ case.routers[0].double().T
    picked = wide.gather(1, ids)
    expected = reference.route_topk(wide[:, :-1], case.top_k)
    if bool((picked - wide.gather(1, expected[1])).abs().max() > _NEAR):
        return "the router's experts are not the best ones"
    if bool((weights - picked.softmax(-1)).abs().max() > _NEAR):
        return "the router's weights are off"
    return None if torch.allclose(score.double(), wide[:, -1:], atol=_NEAR) else "score is off"


def _wrong_layer(case: Mixture, x: Tensor, whole: Tensor) -> str | None:
    y = case.layer(x)
    weights, ids, score = case.routed(x)
    wide = (x.double(), weights.double(), ids)
    found = BF16.violation(y, reference.sparse_moe(*wide, *case.stored, score.double()))
    if found is None and not torch.equal(y, case.layer(whole)[: y.shape[0]]):
        return f"rows differ from those of {whole.shape[0]} tokens"
    return found


def _views(weights: Sequence[Weight], experts: int) -> tuple[ExpertWeights, SharedExpert]:
    gate_up, down, *shared = weights
    return ExpertWeights(gate_up, down, experts), SharedExpert(*shared)
