"""Forms of attention over a paged cache beside each other: Triton's, and sizes of the CUDA kernels.

Each is checked against float32 attention in torch, for all token counts of its case, then timed.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any, Final

import torch
from torch import Tensor

from ninfer.bench import attention_case
from ninfer.bench.attention_case import Attention
from ninfer.bench.isolated import isolated
from ninfer.bench.replay import replayed
from ninfer.bench.report import Findings
from ninfer.bench.timer import Timing
from ninfer.bench.variant_rows import variant_rows
from ninfer.ops.attention import fast, portable
from ninfer.ops.attention.fast_plan import AttendPlan, Cuts, attend_plan
from ninfer.ops.linear.compiler import Program, binary
from ninfer.ops.tensors import PagedKV, RaggedRows

_LIMIT_S: Final = 40.0
_DIM: Final = 256


@dataclass(frozen=True, slots=True)
class Variant:
    """Sizes other than the table's, by field of AttendPlan; or the Triton form."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    triton: bool = False

    def plan(self, number: int, form: str, heads: tuple[int, int], tokens: int) -> AttendPlan:
        """The sizes for so many tokens of one sequence, with no more blocks than fit."""
        group = heads[0] // heads[1]
        table = attend_plan(number, form, heads[1], group, tokens * group)
        found = replace(table, **self.changes)
        return (
            found
            if "tiles" in self.changes
            else replace(found, blocks=min(found.blocks, table.blocks))
        )


# The table's first: fewer blocks a multiprocessor, other cuts of the keys, other joins, tiles of 32
# rows also where 8 hold them.
VARIANTS: Final = (
    Variant("table"),
    Variant("Triton", triton=True),
    Variant("2 blocks", {"blocks": 2}),
    Variant("3 blocks", {"blocks": 3}),
    Variant("4 blocks", {"blocks": 4}),
    Variant("cuts of 256 and 512", {"cuts": Cuts(32, 256, 512)}),
    Variant("cuts of 512", {"cuts": Cuts(1, 512, 512)}),
    Variant("cuts of 128 and 1024", {"cuts": Cuts(64, 128, 1024)}),
    Variant("join by 8 warps", {"join_warps": 8}),
    Variant("join by 32 warps", {"join_warps": 32}),
    Variant("32 rows", {"tiles": 4, "blocks": 3}),
)
# KV format, query and KV heads, positions, token counts, and how many of the variants.
CASES: Final = (
    ("int8", (24, 4), 262144, (1, 4), len(VARIANTS)),
    ("int8", (24, 4), 8192, (1, 4, 16), len(VARIANTS)),
    ("int8", (16, 2), 262144, (1, 4), 5),
    ("fp8", (24, 4), 262144, (1, 4), 5),
    ("bf16", (24, 4), 8192, (1, 4), 5),
)


@dataclass(frozen=True, slots=True)
class Job:
    """One variant of one case."""

    form: str
    heads: tuple[int, int]
    length: int
    tokens: tuple[int, ...]
    variant: Variant

    @property
    def name(self) -> str:
        """The case as rows of results name it."""
        return f"attention {self.form} {self.heads[0]}/{self.heads[1]} {self.length}"


def all_jobs() -> list[Job]:
    """Every variant of every case."""
    return [
        Job(form, heads, length, tokens, variant)
        for form, heads, length, tokens, most in CASES
        for variant in VARIANTS[:most]
    ]


def run(number: int) -> Findings:
    """Each variant checked, then timed beside the table's, on a card of that architecture."""
    jobs = all_jobs()
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(binary, programs(number, jobs)))
    answers = isolated(jobs, timed, _LIMIT_S)
    return variant_rows((job.name, job.variant.name, found, why) for job, found, why in answers)


def programs(number: int, jobs: list[Job]) -> list[Program]:
    """What the jobs start of CUDA, each program once."""
    found: dict[Program, None] = {}
    for job in jobs:
        if not job.variant.triton:
            for count in job.tokens:
                plan = job.variant.plan(number, job.form, job.heads, count)
                found |= dict.fromkeys(fast.programs(number, plan))
    return list(found)


def timed(job: Job) -> dict[int, Timing]:
    """Seconds of a call by token count. Raises FormatError when a check fails."""
    base, want = _case(job.form, job.heads, job.length, max(job.tokens))
    case = replace(base, attend=attending(job.variant))
    attention_case.check(case, job.tokens, want)
    return {count: replayed(case.calls(count)) for count in job.tokens}


def attending(variant: Variant) -> Callable[..., Tensor]:
    """The form of paged_attention that a variant is."""
    return portable.paged_attention if variant.triton else partial(_attend, variant)


def _attend(
    variant: Variant, q: Tensor, cache: PagedKV, rows: RaggedRows, *, scale: float
) -> Tensor:
    major, minor = torch.cuda.get_device_capability(q.device)
    heads = (q.shape[1], cache.keys.shape[2])
    plan = variant.plan(10 * major + minor, cache.format, heads, q.shape[0])
    return fast.attend(q, cache, rows, scale, plan)


@lru_cache(maxsize=1)
def _case(form: str, heads: tuple[int, int], length: int, tokens: int) -> tuple[Attention, Tensor]:
    """A case and what its rows should be; the next one takes their place."""
    device = torch.device("cuda", torch.cuda.current_device())
    case = attention_case.attention(form, heads, _DIM, length, tokens, device)
    return case, attention_case.expected(case, tokens)
