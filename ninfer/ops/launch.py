"""Launching Triton kernels: on the current device, or as a request to compile only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
import triton
from torch import Tensor

Grid = tuple[int, ...]
Launch = Callable[[Any, Grid, tuple[Any, ...], dict[str, Any]], None]

# Compute capability of the interpreter's results: sizes are those of this card.
INTERPRETED_ARCHITECTURE: Final = 90
# What a launch raises that asks for more registers or shared memory than the card has.
TOO_LARGE: Final = (triton.runtime.errors.OutOfResources,)
INTERPRETED: Final[bool] = triton.knobs.runtime.interpret


def _run(kernel: Any, grid: Grid, values: tuple[Any, ...], options: dict[str, Any]) -> None:
    kernel[grid](*values, **options)


_launch: Launch = _run
_architecture: int | None = None


def launch(kernel: Any, grid: Grid, *values: Any, **options: Any) -> None:
    """Start a kernel; what `redirected` was given takes its place."""
    _launch(kernel, grid, values, options)


def architecture(x: Tensor) -> int:
    """Ten times the compute capability of the card that holds `x`."""
    if _architecture is not None:
        return _architecture
    if x.device.type != "cuda":
        return INTERPRETED_ARCHITECTURE
    major, minor = torch.cuda.get_device_capability(x.device)
    return 10 * major + minor


@contextmanager
def redirected(to: Launch, architecture: int) -> Iterator[None]:
    """Give every launch inside the `with` to a function, with the sizes of an architecture.

    For compiling ahead of time and for tests; process-wide.
    """
    global _launch, _architecture
    before = _launch, _architecture
    _launch, _architecture = to, architecture
    try:
        yield
    finally:
        _launch, _architecture = before
