"""Forms of a Gated DeltaNet step beside each other, and sizes of the kernel for whole chunks."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.bench import delta_case
from ninfer.bench.delta_case import HEADS, KEY_HEADS, Mixer
from ninfer.bench.isolated import isolated
from ninfer.bench.replay import replayed
from ninfer.bench.report import Findings
from ninfer.bench.timer import Timing
from ninfer.bench.variant_rows import variant_rows
from ninfer.ops.delta_net import fast, portable
from ninfer.ops.delta_net.row_plan import RowPlan, row_plan
from ninfer.ops.dispatch import register, using
from ninfer.ops.gdn import portable as chunks
from ninfer.ops.gdn.portable import ScanPlan, scan_plan
from ninfer.ops.linear.compiler import Program, binary

STEPS: Final = (1, 4, 16)
RUNS: Final = (1024, 4096)
_LIMIT_S: Final = 40.0
_FORM: Final = "variant"
# The table's first. 192 blocks or 48 in place of 96, more warps for a block, other layouts of the
# sums over keys, fewer rows at once, no look ahead.
PLANS: Final = (
    row_plan(90),
    RowPlan(2, 16),
    RowPlan(4, 4),
    RowPlan(4, 8),
    RowPlan(1, 16),
    RowPlan(2, 8, lanes=4),
    RowPlan(2, 8, lanes=16),
    RowPlan(2, 8, rows=8),
    RowPlan(2, 8, foresees=False),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """Sizes of the CUDA kernel, or the Triton form."""

    plan: RowPlan | None = None

    @property
    def name(self) -> str:
        """What a row of results calls it."""
        if self.plan is None:
            return "Triton"
        plan = self.plan
        text = f"{plan.pieces} blocks of {plan.warps} warps, {plan.lanes} lanes, {plan.rows} rows"
        return text if plan.foresees else f"{text}, no look ahead"

    @property
    def single(self) -> Callable[..., None]:
        """What starts the kernel for rows outside of chunks."""
        if self.plan is None:
            return portable.launch_rows
        return partial(fast.launch_rows, plan=self.plan)


@dataclass(frozen=True, slots=True)
class ChunkVariant:
    """Sizes of the kernel that goes through chunks."""

    plan: ScanPlan

    @property
    def name(self) -> str:
        """What a row of results calls it."""
        return f"{self.plan.columns} columns, {self.plan.warps} warps, {self.plan.stages} stages"


VARIANTS: Final = (*(Variant(plan) for plan in PLANS), Variant())
SCANS: Final = tuple(
    ChunkVariant(plan)
    for plan in (
        scan_plan(90),
        ScanPlan(16, 4, 1),
        ScanPlan(32, 4, 2),
        ScanPlan(64, 8, 2),
    )
)


def run(number: int) -> Findings:
    """Each variant checked, then timed beside the table's, on a card of that architecture."""
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(binary, programs(number)))
    answers = isolated(VARIANTS, timed, _LIMIT_S)
    steps = collected("GDN step", answers)
    answers_of_runs = isolated(SCANS, timed_chunks, _LIMIT_S)
    runs = collected("GDN chunks", answers_of_runs)
    return Findings([*steps.rows, *runs.rows], failures=(*steps.failures, *runs.failures))


def collected(
    name: str,
    answers: Iterable[tuple[Variant | ChunkVariant, dict[int, Timing] | None, str]],
) -> Findings:
    """Rows of the variants beside the first; one without a result is among the failures."""
    return variant_rows((name, variant.name, found, why) for variant, found, why in answers)


def programs(number: int) -> list[Program]:
    """What the variants and their checks start on an architecture."""
    heads = ((HEADS, KEY_HEADS), *delta_case.CHECKED_HEADS)
    made = (
        fast.program(number, plan, *some, halves=halves)
        for plan in PLANS
        for some, halves in (*((some, True) for some in heads), (heads[0], False))
    )
    return list(dict.fromkeys(made))


@lru_cache(maxsize=1)
def _mixer(device: torch.device) -> Mixer:
    return Mixer.made(device)


def timed(variant: Variant) -> dict[int, Timing]:
    """Seconds of a step by rows. Raises FormatError when a check fails."""
    device = torch.device("cuda", torch.cuda.current_device())

    def delta_net(*parts: Any, eps: float) -> Tensor:
        return portable.composed(*parts, eps=eps, single=variant.single)

    register(_FORM, delta_net)
    with using("portable", only=delta_case.FAMILY), using(_FORM, only=("delta_net",)):
        delta_case.check_steps(device)
        mixer = _mixer(device)
        return {count: replayed(mixer.steps(count)) for count in STEPS}


def timed_chunks(variant: ChunkVariant) -> dict[int, Timing]:
    """Seconds of the rule alone by rows. Raises FormatError when a check fails."""
    device = torch.device("cuda", torch.cuda.current_device())

    def gated_delta_rule(*parts: Any) -> Tensor:
        return chunks.composed(*parts, plan=variant.plan)

    register(_FORM, gated_delta_rule)
    found = {}
    with using("portable", only=delta_case.FAMILY), using(_FORM, only=("gated_delta_rule",)):
        mixer = _mixer(device)
        delta_case.check_prefill(mixer, min(RUNS))
        for count in RUNS:
            found[count] = replayed(delta_case.rule_calls(mixer, count))
    return found
