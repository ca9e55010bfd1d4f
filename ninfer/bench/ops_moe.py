"""Rows of `bench ops` on experts, norms, rotation and gates: checked, then timed."""

from typing import Final

import torch

from ninfer.bench import moe_case, row_case
from ninfer.bench.linear_case import PORTABLE
from ninfer.bench.moe_case import Mixture
from ninfer.bench.replay import replayed
from ninfer.bench.report import Row, rate_row, time_row
from ninfer.bench.row_case import Rows
from ninfer.bench.timer import Timing
from ninfer.errors import FormatError, UnsupportedError

TERABYTE: Final = 1e12
MIXTURE_TOKENS: Final = (1, 4, 8, 64)
ROW_TOKENS: Final = (1, 64, 2048)


def all_rows(device: torch.device, read: float, copied: float) -> tuple[list[Row], list[str]]:
    """The rows of all parts, and what is wrong with those that have none.

    `read` and `copied` are the measured roofs in TB/s.
    """
    rows: list[Row] = []
    failures: list[str] = []
    mixture = moe_case.mixture(device)
    for by_cuda in (False, True):
        try:
            rows += mixture_rows(moe_case.by_cuda(mixture) if by_cuda else mixture, read)
        except (FormatError, UnsupportedError) as error:
            failures.append(str(error))
    for op in row_case.CASES:
        try:
            rows += row_op_rows([row_case.rows(op, count, device) for count in ROW_TOKENS], copied)
        except (FormatError, UnsupportedError) as error:
            failures.append(str(error))
    return rows, failures


def mixture_rows(case: Mixture, read: float) -> list[Row]:
    """Router, experts and the whole layer, beside the read roof and the time of one token.

    Raises FormatError when the check fails.
    """
    moe_case.check(case, MIXTURE_TOKENS)
    timings: dict[str, dict[int, Timing]] = {"router": {}, "experts": {}, "layer": {}}
    for count in MIXTURE_TOKENS:
        timings["router"][count] = replayed(case.router_calls(count))
        timings["experts"][count] = replayed(case.expert_calls(count))
        timings["layer"][count] = replayed(case.layer_calls(count))
    rows = []
    for part, found in timings.items():
        for count, timing in found.items():
            size: float = 0 if part == "experts" else case.router_bytes
            shape: dict[str, int | str] = {"T": count}
            if part != "router":
                size += case.expert_bytes(count)
                shape["experts"] = f"{case.distinct(count):.1f}"
            shape["MB"] = f"{size / 1e6:.1f}"
            rows += _rows(
                f"MoE {part} 35B {case.tier}", shape, size, timing, found[1], read, "read"
            )
    return rows


def row_op_rows(cases: list[Rows], copied: float) -> list[Row]:
    """One op at several token counts, the least first, beside the rate of a copy.

    Raises FormatError when the check fails.
    """
    for case in cases:
        row_case.check(case)
    timings = [replayed(case.calls()) for case in cases]
    rows = []
    for case, timing in zip(cases, timings, strict=True):
        shape: dict[str, int | str] = {"row": "x".join(map(str, case.op.shape)), "T": case.tokens}
        name = f"{case.op.name} {PORTABLE}"
        rows += _rows(name, shape, case.bytes, timing, timings[0], copied, "copy")
    return rows


def _rows(
    name: str,
    shape: dict[str, int | str],
    size: float,
    timing: Timing,
    first: Timing,
    roof: float,
    roof_name: str,
) -> list[Row]:
    return [
        rate_row(name, shape, "TB/s", size / TERABYTE, timing, (f"memory {roof_name}", roof)),
        time_row(name, shape, timing, ("T=1", first.median), unit="us"),
    ]
