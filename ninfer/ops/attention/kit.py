"""The launch list of the CUDA attention: what a kit for an architecture has to hold."""

from typing import Final

from ninfer.ops.attention.fast import programs as of_plan
from ninfer.ops.attention.fast_plan import FORMS, MOST_TILES, attend_plan
from ninfer.ops.linear.compiler import Program

# KV heads of the registered models whose heads this form is made for, and query heads of each.
HEADS: Final = ((4, 6), (2, 8))


def programs(architecture: int) -> list[Program]:
    """All programs that those heads ask for by any cache format, each once."""
    found: dict[Program, None] = {}
    for form in FORMS:
        for heads, group in HEADS:
            for tiles in range(1, MOST_TILES + 1):
                plan = attend_plan(architecture, form, heads, group, 8 * tiles)
                found |= dict.fromkeys(of_plan(architecture, plan))
    return list(found)
