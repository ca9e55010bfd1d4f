"""Other sizes of the CUDA draw than the plan's, and the portable form, checked and timed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Final

import torch

from ninfer.bench.replay import replayed
from ninfer.bench.sampling_case import LIMIT, Timed, cases
from ninfer.bench.timer import Timing
from ninfer.ops.linear.compiler import Program
from ninfer.ops.sampling import fast
from ninfer.ops.sampling.fast_plan import NARROW, WIDE, DrawPlan, draw_plan

NAMES: Final = ("sample, all filters", "sample, top-p", "sample, no cut")
_ROWS: Final = (1, 8, 64)
_BF16: Final = 0


@dataclass(frozen=True, slots=True)
class DrawVariant:
    """Blocks of a row and changes of the plan, for some numbers of rows."""

    name: str
    rows: tuple[int, ...] = _ROWS
    cluster: int | None = None
    changes: Mapping[str, int] = field(default_factory=dict)
    is_portable: bool = False

    def plan(self, rows: int) -> DrawPlan:
        """The sizes for that many rows."""
        return replace(draw_plan(rows, LIMIT, _BF16, self.cluster), **self.changes)


# The first is the plan's own.
VARIANTS: Final = (
    DrawVariant("as planned"),
    DrawVariant("portable", is_portable=True),
    DrawVariant("cluster:8", (1,), NARROW),
    DrawVariant("cluster:16", (8, 64), WIDE),
    DrawVariant("warps:16", _ROWS, None, {"warps": 16}),
    DrawVariant("list:1024", _ROWS, None, {"listed": 1024}),
)


@dataclass(frozen=True, slots=True)
class DrawJob:
    """One variant of one kind of draw."""

    variant: DrawVariant
    name: str

    def programs(self, number: int) -> list[Program]:
        """What the job starts on an architecture."""
        if self.variant.is_portable:
            return []
        return [fast.program(number, self.variant.plan(count)) for count in self.variant.rows]

    def timed(self) -> dict[int, Timing]:
        """Seconds of a draw by its rows. Raises FormatError when a check fails."""
        return {count: self._timed(count) for count in self.variant.rows}

    def _timed(self, rows: int) -> Timing:
        base = next(case for case in _cases(rows) if case.name == self.name)
        own = base if self.variant.is_portable else base.by_cuda(self.variant.plan(rows))
        assert own is not None
        own.check()
        return replayed([partial(own.call, x) for x in own.logits])


def draw_jobs() -> list[DrawJob]:
    """Every variant of every kind."""
    return [DrawJob(variant, name) for name in NAMES for variant in VARIANTS]


@lru_cache(maxsize=len(_ROWS))
def _cases(rows: int) -> list[Timed]:
    return cases(rows, torch.device("cuda", torch.cuda.current_device()))
