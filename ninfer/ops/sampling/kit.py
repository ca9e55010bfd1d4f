"""The launch list of the CUDA draw: what a kit for an architecture has to hold."""

from typing import Final

from ninfer.ops.linear.compiler import Program
from ninfer.ops.sampling.fast import program
from ninfer.ops.sampling.fast_plan import ARCHITECTURES, FEW_ROWS, MOST_IDS, draw_plan

_BF16: Final = 0


def programs(architecture: int) -> list[Program]:
    """The draws from bfloat16 logits; none where the form cannot run."""
    if architecture not in ARCHITECTURES:
        return []
    plans = [draw_plan(rows, MOST_IDS, _BF16) for rows in (1, FEW_ROWS + 1)]
    return [program(architecture, plan) for plan in plans]
