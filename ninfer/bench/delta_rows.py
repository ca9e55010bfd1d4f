"""Rows of `bench ops` for the Gated DeltaNet: checked, timed, beside the reference and others."""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch

from ninfer import ops
from ninfer.bench import delta_case
from ninfer.bench.delta_case import FAMILY, HEADS, Mixer
from ninfer.bench.replay import replayed
from ninfer.bench.report import Row, rate_row, time_row
from ninfer.bench.timer import Timing, measure
from ninfer.ops.delta_net import fast
from ninfer.ops.dispatch import using

STEPS: Final = (1, 4, 8, 16)
PREFILLS: Final = (1024, 4096)
PARTS: Final = (1, 4096)
_TERABYTE: Final = 1e12


def delta_rows(device: torch.device, read: float) -> list[Row]:
    """Steps, prefills and parts on the portable tier, steps by the CUDA kernel on a card too.

    `read` is the memory roof in TB/s. Raises FormatError when a check fails.
    """
    with using("portable", only=FAMILY):
        delta_case.check_steps(device)
        mixer = Mixer.made(device)
        rows = [*step_rows(mixer, read), *prefill_rows(mixer), *part_rows(mixer)]
        if device.type == "cuda":
            with using(fast.FORM, only=("delta_net",)):
                delta_case.check_steps(device)
                rows += step_rows(mixer, read, "GDN step CUDA")
        return rows


def step_rows(mixer: Mixer, read: float, name: str = "GDN step") -> list[Row]:
    """Convolution to gated norm in one launch, in microseconds and bytes per second."""
    rows = []
    for count in STEPS:
        calls = mixer.steps(count)
        timing = replayed(calls)
        shape: dict[str, int | str] = {"heads": HEADS, "T": count}
        size = delta_case.state_bytes(count) / _TERABYTE
        rows += [
            time_row(name, shape, timing, ("torch reference", _eager(calls[0])), unit="us"),
            rate_row(name, shape, "TB/s", size, timing, ("memory read", read)),
        ]
    return rows


def prefill_rows(mixer: Mixer) -> list[Row]:
    """The whole mixer, and the rule alone beside flash-linear-attention where it is installed."""
    rows = []
    for count in PREFILLS:
        delta_case.check_prefill(mixer, count)
        shape: dict[str, int | str] = {"heads": HEADS, "T": count}
        calls = mixer.prefills(count)
        reference = ("torch reference", _eager(calls[0]))
        rows.append(time_row("GDN prefill", shape, replayed(calls), reference, unit="us"))
        alone = delta_case.rule_calls(mixer, count)
        other = delta_case.fla_prefill(mixer, count)
        reference = ("torch reference", _eager(alone[0]))
        if other is not None:
            reference = ("flash-linear-attention", replayed([other] * 4).median)
        rows.append(time_row("GDN chunks", shape, replayed(alone), reference, unit="us"))
    return rows


def part_rows(mixer: Mixer) -> list[Row]:
    """The convolution and the gates alone."""
    rows = []
    for count in PARTS:
        shape: dict[str, int | str] = {"T": count}
        x = mixer.projections(count)
        gates = partial(ops.gdn_gating, *(x.a, x.b, mixer.weights.a_log, mixer.weights.dt_bias))
        for name, calls in (
            ("GDN convolution", mixer.convolutions(count)),
            ("GDN gates", [gates] * 4),
        ):
            reference = ("torch reference", _eager(calls[0]))
            rows.append(time_row(name, shape, replayed(calls), reference, unit="us"))
    return rows


def _eager(call: Callable[[], object]) -> float:
    """Seconds of a call by the reference, which waits for the device on its way."""

    def finished() -> None:
        call()
        torch.cuda.synchronize()

    with using("reference", only=FAMILY):
        timing: Timing = measure(finished, repeats=3)
    return timing.median
