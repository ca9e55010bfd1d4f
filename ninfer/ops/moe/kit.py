"""The launch list of the CUDA experts: what a kit for an architecture has to hold."""

from typing import Final

from ninfer.ops.linear.compiler import Program
from ninfer.ops.moe.fast import Plan, program
from ninfer.ops.moe.fast_plan import (
    ARCHITECTURES,
    FEW,
    MOST,
    Layer,
    down_plan,
    gate_up_plan,
    router_plan,
)

# Layers of the registered models: those of the decoder, its last one, the drafter's.
LAYERS: Final = tuple(
    Layer(256, 8, 2048, 512, 512, (first, 8), (second, 8))
    for first, second in ((4, 5), (4, 6), (8, 8))
)
# Of the blocks, which no program depends on.
_MULTIPROCESSORS: Final = 132


def programs(architecture: int) -> list[Program]:
    """All programs that the layers can ask for, each once; none where the form cannot run."""
    if architecture not in ARCHITECTURES:
        return []
    found: dict[Program, None] = {}
    for layer in LAYERS:
        for tokens in (1, FEW, MOST):
            plans: list[Plan] = [
                router_plan(layer.dim, layer.experts),
                gate_up_plan(layer, tokens, _MULTIPROCESSORS),
                down_plan(architecture, layer, tokens),
            ]
            found |= dict.fromkeys(program(architecture, plan) for plan in plans)
    return list(found)
