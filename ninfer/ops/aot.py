"""Compile kernels ahead of time, without a GPU, for any architecture, into a cache that can move.

Ops are called on tensors without memory while launches are redirected: each one is compiled by
Triton's own path for the architecture in question, so that its cache key is the one that the same
call has on a card. Key ingredients are the Triton build, the kernel's source and its options, not
the machine.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.cache import triton_key

from ninfer.errors import UnsupportedError
from ninfer.ops.launch import INTERPRETED, Grid, redirected
from ninfer.ops.linear.fast_plan import shared_limit

ARCHITECTURES: Final = (80, 86, 89, 90, 100, 120)


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel of the list: its name and target, and what the compiler said."""

    kernel: str
    architecture: int
    seconds: float
    error: str | None = None
    shared_bytes: int = 0


class _Target:
    """What Triton asks its driver for while it compiles; there is no device behind it."""

    def __init__(self, architecture: int) -> None:
        self._target = GPUTarget("cuda", architecture, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        # One cache of specialisations for each architecture.
        return int(self._target.arch)

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def compiling(architecture: int, found: list[Compiled]) -> Iterator[None]:
    """Compile every launch inside the `with` for an architecture, adding one record for each.

    A kernel that does not compile, or does not fit on the card, is recorded with the reason and
    stops no other. Raises UnsupportedError in a process that interprets kernels.
    """
    if INTERPRETED:
        raise UnsupportedError(
            "TRITON_INTERPRET is set: this process interprets kernels and cannot compile them"
        )
    seen: set[str] = set()

    def compile_only(
        kernel: Any, grid: Grid, values: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        start = perf_counter()
        try:
            built = kernel.warmup(*values, grid=grid, **options)
        # Syntax, assertion, tool errors: all are findings.
        except Exception as error:  # noqa: BLE001  # the compiler raises what it likes
            text = _innermost(error)
            found.append(Compiled(kernel.__name__, architecture, perf_counter() - start, text))
            return
        if built.hash not in seen:
            seen.add(built.hash)
            seconds = perf_counter() - start
            shared, limit = built.metadata.shared, shared_limit(architecture)
            over = f"takes {shared} bytes of shared memory of {limit}" if shared > limit else None
            found.append(Compiled(kernel.__name__, architecture, seconds, over, shared))

    # Not `driver.active`, which looks for a card and raises where there is none.
    before = driver._active
    driver.set_active(_Target(architecture))
    try:
        with redirected(compile_only, architecture):
            yield
    finally:
        driver._active = before


def _innermost(error: BaseException) -> str:
    """The first cause of an error, on one line; Triton wraps each in one per level of calls."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def compile_calls(
    calls: Iterable[Callable[[], object]], architectures: Iterable[int]
) -> list[Compiled]:
    """Make the calls once for each architecture, compiling what they would launch."""
    calls = list(calls)
    found: list[Compiled] = []
    for architecture in architectures:
        with compiling(architecture, found):
            for call in calls:
                call()
    return found


def use_cache(folder: str | PathLike[str], *, binaries_only: bool = False) -> None:
    """Read and write compiled kernels below a folder, which may come from another machine.

    `binaries_only` keeps no intermediate forms of what is compiled from now on.
    """
    triton.knobs.cache.dir = str(folder)
    if binaries_only:
        triton.knobs.compilation.store_binary_only = True


def compiler_facts() -> dict[str, str]:
    """What the keys of compiled kernels depend on beside their sources: version and build.

    `triton_key` digests Triton's own sources and library, some 500 MB; a second with a warm cache.
    """
    key = hashlib.sha256(triton_key().encode()).hexdigest()
    return {"triton": triton.__version__, "triton_key": key}


def cache_folder() -> Path:
    """Where this process keeps the kernels that Triton compiles."""
    return Path(triton.knobs.cache.dir)
