"""The launch list of the CUDA Gated DeltaNet: what a kit for an architecture has to hold."""

from typing import Final

from ninfer.ops.delta_net.fast import program
from ninfer.ops.delta_net.row_plan import row_plan
from ninfer.ops.linear.compiler import Program

# Value heads and key heads of the registered models whose heads this form is made for.
HEADS: Final = ((48, 16), (32, 16))


def programs(architecture: int) -> list[Program]:
    """One program for those heads by each number format of the state."""
    plan = row_plan(architecture)
    return [
        program(architecture, plan, heads, key_heads, halves=halves)
        for heads, key_heads in HEADS
        for halves in (False, True)
    ]
