"""Other sizes of the CUDA experts than the plans', checked and timed on the 35B's layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import torch

from ninfer.bench import moe_case
from ninfer.bench.moe_case import Mixture
from ninfer.bench.replay import replayed
from ninfer.bench.timer import Timing
from ninfer.ops.linear.compiler import Program
from ninfer.ops.moe import fast
from ninfer.ops.moe.fast_plan import (
    DownPlan,
    GateUpPlan,
    Layer,
    down_plan,
    gate_up_plan,
    router_plan,
)

LAYER: Final = Layer(256, 8, 2048, 512, 512, (4, 8), (5, 8))
_MULTIPROCESSORS: Final = 132
_KIB: Final = 1024
_FEW: Final = (1, 4, 8)
_ALL: Final = (1, 4, 8, 64)


@dataclass(frozen=True, slots=True)
class MixtureVariant:
    """Changes of the two plans, for some token counts."""

    name: str
    tokens: tuple[int, ...] = _ALL
    first: Mapping[str, Any] = field(default_factory=dict)
    second: Mapping[str, Any] = field(default_factory=dict)

    def plans(self, tokens: int) -> tuple[GateUpPlan, DownPlan]:
        """The sizes for that many tokens."""
        first = gate_up_plan(LAYER, tokens, _MULTIPROCESSORS)
        return replace(first, **self.first), replace(down_plan(90, LAYER, tokens), **self.second)


# The first is the plans' own.
VARIANTS: Final = (
    MixtureVariant("as planned"),
    MixtureVariant("gate/up 16x2", _ALL, {"split": (16, 2)}),
    MixtureVariant("gate/up one group at a time", _FEW, {"twins": 1}),
    MixtureVariant("gate/up reducers:1", _FEW, {"reducers": 1}),
    MixtureVariant("gate/up reducers:4", _ALL, {"reducers": 4}),
    MixtureVariant("gate/up ring:70", _FEW, {"ring": 70 * _KIB}),
    MixtureVariant("gate/up ring:136", _ALL, {"ring": 136 * _KIB}),
    MixtureVariant("shared blocks:16", (1,), {"shared_blocks": 16}),
    MixtureVariant("shared blocks:4", (4, 8), {"shared_blocks": 4}),
    MixtureVariant("shared blocks:16", (4, 64), {"shared_blocks": 16}),
    MixtureVariant("down 8x1 alone", (1,), {}, {"least_blocks": 1}),
    MixtureVariant("down 8x2", (4, 8, 64), {}, {"warps": 8, "stages": 2}),
    MixtureVariant("down 12x1", (4, 8, 64), {}, {"warps": 12, "stages": 1}),
    MixtureVariant("down 8x3", (4, 8, 64), {}, {"warps": 8, "stages": 3}),
    MixtureVariant("down 8x1 beside", (4, 8), {}, {"warps": 8, "stages": 1, "least_blocks": 2}),
    MixtureVariant(
        "down 8x2 beside, ring:85",
        (4, 8),
        {"ring": 85 * _KIB},
        {"warps": 8, "stages": 2, "least_blocks": 2},
    ),
    MixtureVariant("down 15x1", (4, 8, 64), {}, {"warps": 15, "stages": 1}),
)


@dataclass(frozen=True, slots=True)
class MixtureJob:
    """One variant of the layer, router included."""

    variant: MixtureVariant
    name: str = "MoE layer 35B"

    def programs(self, number: int) -> list[Program]:
        """What the job starts on an architecture."""
        plans = [router_plan(LAYER.dim, LAYER.experts)]
        pairs = [self.variant.plans(count) for count in {*self.variant.tokens, moe_case.MOST}]
        return [
            fast.program(number, plan) for plan in (*plans, *(p for pair in pairs for p in pair))
        ]

    def timed(self) -> dict[int, Timing]:
        """Seconds of a layer by token count. Raises FormatError when its check fails."""
        case = moe_case.by_cuda(_mixture(), self.variant.plans)
        moe_case.check(case, self.variant.tokens)
        return {count: replayed(case.layer_calls(count)) for count in self.variant.tokens}


def mixture_jobs() -> list[MixtureJob]:
    """Every variant."""
    return [MixtureJob(variant) for variant in VARIANTS]


@lru_cache(maxsize=1)
def _mixture() -> Mixture:
    return moe_case.mixture(torch.device("cuda", torch.cuda.current_device()))
