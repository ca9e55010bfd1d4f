"""Every op by every form that this machine can run, against the float64 reference.

Forms are the reference itself, the tiers of kernels, and CUDA forms that no tier has yet; those of
linear ops and experts read weights in an order of their own and are `ninfer bench ops`'s to check.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from ninfer.errors import UnsupportedError, UsageError
from ninfer.lazy import lazy_exports
from ninfer.ops.case import Case
from ninfer.ops.cases import ALL_CASES
from ninfer.ops.compare import compare, margin
from ninfer.ops.dispatch import REFERENCE, register, using
from ninfer.ops.tiers import tiers_on

CUDA: Final = "cuda"
# Ops with a CUDA form that takes the same arguments, and its module.
_CUDA_FORMS: Final = {
    "paged_attention": "ninfer.ops.attention.fast",
    "sample": "ninfer.ops.sampling.fast",
    "next_tokens": "ninfer.ops.sampling.fast",
    "delta_net": "ninfer.ops.delta_net.fast",
}
# Their compiler's binding is imported only where there is a card.
_cuda_form = lazy_exports(__name__, _CUDA_FORMS)
_TYPES: Final = {"cpu": (torch.float32, torch.bfloat16), "cuda": (torch.bfloat16,)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One op by one form: cases that agree, the worst margin, cases not served, what is wrong."""

    op: str
    form: str
    dtype: str
    cases: int
    margin: float
    refused: int
    wrong: tuple[str, ...]


def this_device() -> torch.device:
    """The first card, or the processor."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def routes(device: torch.device, ops: Sequence[str], seed: int) -> Iterator[Verdict]:
    """Judge op by op. Raises UsageError for an op without cases."""
    by_op: dict[str, list[Case]] = {}
    for case in ALL_CASES:
        by_op.setdefault(case.op.__name__, []).append(case)
    for name in ops:
        if name not in by_op:
            raise UsageError(f"--op {name}: no such op; known: {', '.join(sorted(by_op))}")
    for name in sorted(ops or by_op):
        for form in forms(device, name):
            for dtype in _TYPES[device.type]:
                yield judge(form, by_op[name], dtype, device, seed)


def forms(device: torch.device, op: str) -> list[str]:
    """The forms of an op that this device can run, the reference first."""
    found = [REFERENCE]
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        found += [tier.name for tier in tiers_on(10 * major + minor) if op in tier.ops]
        if op in _CUDA_FORMS:
            register(CUDA, _cuda_form(op))
            found.append(CUDA)
    return found


def judge(
    form: str, cases: Sequence[Case], dtype: torch.dtype, device: torch.device, seed: int
) -> Verdict:
    """All cases of one op by one form. Cases that a form refuses by name are counted apart."""
    name = cases[0].op.__name__
    agreed, refused, worst = 0, 0, 0.0
    wrong: list[str] = []
    with using(form, only=[name]):
        for case in cases:
            try:
                problems = compare(case, dtype, device, seed)
                worst = max(worst, margin(case, dtype, device, seed))
            except UnsupportedError:
                refused += 1
                continue
            wrong += problems
            agreed += not problems
    kind = str(dtype).removeprefix("torch.")
    return Verdict(name, form, kind, agreed, round(worst, 3), refused, tuple(wrong))
