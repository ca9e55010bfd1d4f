"""Sizes of CUDA kernels beside the tables', timed to see which a shape should have on a card.

All kernels are compiled first, on all cores. Then the variants are checked and timed in a second
process: one that hangs or ends with an error costs its own rows only.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import Final

import torch

from ninfer.bench import attention_variants, delta_variants, linear_case
from ninfer.bench.draw_variants import DrawJob, draw_jobs
from ninfer.bench.isolated import isolated
from ninfer.bench.linear_case import Product
from ninfer.bench.linear_variants import Variant, stream, warpgroups, warps
from ninfer.bench.moe_variants import MixtureJob, mixture_jobs
from ninfer.bench.replay import replayed
from ninfer.bench.report import Findings
from ninfer.bench.timer import Timing
from ninfer.bench.variant_rows import variant_rows
from ninfer.errors import UnsupportedError
from ninfer.ops.linear import fast
from ninfer.ops.linear.compiler import Program, binary, compiler_version
from ninfer.ops.linear.fast_plan import Split
from ninfer.ops.linear.launcher import architecture, driver_version

_LIMIT_S: Final = 40.0
_WIDE, _DOWN, _OUT = Split(20, 2, 2), Split(17, 2, 8), Split(12, 4, 2)
_SMALL: Final = Split(16, 2, 1)

# Format, rows, columns, and variants, of which the first for a token count is the table's.
CASES: Final[Sequence[tuple[str, int, int, tuple[Variant, ...]]]] = (
    (
        "Q4",
        34816,
        5120,
        (
            stream(20, 2, 2),
            stream(20, 2, 2, multiplier_registers=0),
            stream(10, 4, 2),
            stream(8, 5, 2),
            warpgroups(_WIDE, 3, 1),
            warpgroups(_WIDE, 3, 2),
            warpgroups(_WIDE, 2, 1),
            warpgroups(_WIDE, 4, 1),
            warpgroups(_WIDE, 5, 1),
            warpgroups(_WIDE, 3, 1, (16,)),
            warps(_WIDE, 12, 4),
        ),
    ),
    (
        "Q5",
        34816,
        5120,
        (
            stream(20, 2, 2),
            stream(10, 4, 2),
            warpgroups(_WIDE, 3, 1),
            warpgroups(_WIDE, 2, 2),
            warpgroups(_WIDE, 4, 1),
        ),
    ),
    (
        "Q5",
        5120,
        17408,
        (
            stream(17, 2, 8),
            stream(17, 2, 8, clusters=0),
            stream(17, 4, 4),
            warpgroups(_DOWN, 3, 1),
            warpgroups(_DOWN, 2, 2),
            warpgroups(_DOWN, 2, 1),
            warps(_DOWN, 12, 4),
        ),
    ),
    (
        "Q5",
        5120,
        6144,
        (
            stream(12, 4, 2),
            stream(16, 3, 2),
            stream(12, 4, 2, clusters=0),
            warpgroups(_OUT, 3, 1),
            warpgroups(_OUT, 2, 2),
            warpgroups(_OUT, 1, 1),
        ),
    ),
    (
        "W8",
        12288,
        2048,
        (
            stream(16, 2, 1),
            stream(8, 4, 1),
            warpgroups(_SMALL, 3, 1),
            warpgroups(_SMALL, 2, 2),
            warps(_SMALL, 12, 4),
        ),
    ),
    (
        "W8",
        34816,
        5120,
        (stream(20, 2, 2), warpgroups(_WIDE, 3, 1), warpgroups(_WIDE, 2, 2), warps(_WIDE, 12, 4)),
    ),
)


@dataclass(frozen=True, slots=True)
class Job:
    """One variant of one shape."""

    form: str
    rows: int
    columns: int
    variant: Variant

    @property
    def name(self) -> str:
        """The shape as rows of results name it."""
        return f"{self.form} {self.rows}x{self.columns}"


def all_jobs() -> list[Job]:
    """Every variant of every case."""
    return [
        Job(form, rows, columns, variant)
        for form, rows, columns, variants in CASES
        for variant in variants
    ]


AnyJob = Job | MixtureJob | DrawJob


def run() -> Findings:
    """Each variant checked, then timed beside the table's.

    Raises UnsupportedError without a card of compute capability 9.0, whose variants these are.
    """
    if not torch.cuda.is_available():
        raise UnsupportedError("bench ops-variants: torch sees no NVIDIA GPU")
    number = architecture(torch.cuda.current_device())
    if number != 90:
        raise UnsupportedError(f"bench ops-variants: its sizes are for sm_90, this is sm_{number}")
    jobs: list[AnyJob] = [*all_jobs(), *mixture_jobs(), *draw_jobs()]
    compile_all(number, jobs)
    note = f"random weights, no text; NVRTC {compiler_version()}, driver CUDA {driver_version()}"
    parts = (collected(jobs, note), attention_variants.run(number), delta_variants.run(number))
    rows = [row for part in parts for row in part.rows]
    return Findings(rows, note, tuple(text for part in parts for text in part.failures))


def collected(jobs: Sequence[AnyJob], note: str) -> Findings:
    """The rows of all jobs; a job without a result is among the failures."""
    answers = isolated(jobs, timed, _LIMIT_S)
    named = ((job.name, job.variant.name, found, why) for job, found, why in answers)
    return variant_rows(named, note)


def programs(number: int, jobs: Sequence[AnyJob]) -> list[Program]:
    """What the jobs start on an architecture, each program once."""
    found: dict[Program, None] = {}
    for job in jobs:
        if isinstance(job, MixtureJob | DrawJob):
            found |= dict.fromkeys(job.programs(number))
            continue
        bits = int(job.form[1])
        for count in job.variant.tokens:
            found |= dict.fromkeys(fast.programs(number, job.variant.plan(number, bits, count)))
    return list(found)


def compile_all(number: int, jobs: Sequence[AnyJob]) -> None:
    """Compile what the jobs start, on all cores."""
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(binary, programs(number, jobs)))


def timed(job: AnyJob) -> dict[int, Timing]:
    """Seconds of a call by token count. Raises FormatError when a check fails."""
    if isinstance(job, MixtureJob | DrawJob):
        return job.timed()
    base = _weight(job.form, job.rows, job.columns, job.variant.split.slice_groups)
    case = replace(base, variant=job.variant)
    linear_case.check(case, job.variant.tokens)
    return {count: replayed(case.calls(count)) for count in job.variant.tokens}


@lru_cache(maxsize=1)
def _weight(form: str, rows: int, columns: int, groups: int) -> Product:
    """Copies of one weight; the next one takes their place."""
    device = torch.device("cuda", torch.cuda.current_device())
    return linear_case.product(form, rows, columns, device, groups)
