"""Compile the kernels of models for an architecture, by as many processes as there are cores."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from ninfer.kits.decode_calls import decode_calls
from ninfer.kits.launches import model_calls
from ninfer.ops.aot import Compiled, compile_calls, use_cache
from ninfer.ops.dispatch import set_backend

# Folder, architecture, model, token counts, number of the first call, step, binaries only.
Share = tuple[str, int, str, tuple[int, ...], int, int, bool]


def compile_share(share: Share) -> list[Compiled]:
    """Every `step`-th call of a model's list, from `first` on; changes this process for good."""
    folder, architecture, model, tokens, first, step, binaries_only = share
    use_cache(folder, binaries_only=binaries_only)
    set_backend("triton", architecture)
    calls = model_calls(model, tokens) if tokens else decode_calls(model)
    return compile_calls(calls[first::step], [architecture])


def compile_models(
    folder: str,
    architectures: Sequence[int],
    models: Sequence[str],
    tokens: Sequence[int],
    jobs: int,
    *,
    every: int = 1,
    binaries_only: bool = False,
) -> list[Compiled]:
    """Fill a cache with the Triton kernels of models; what each launch came to.

    Without `tokens` these are all kernels that decode rounds launch. `every` N takes only each N-th
    launch of a list.
    """
    # Few architectures on many cores: shares of one list. Many on few: whole lists.
    shares = max(1, -(-jobs // (len(architectures) * len(models))))
    tasks: list[Share] = [
        (folder, architecture, model, tuple(tokens), n * every, shares * every, binaries_only)
        for architecture in architectures
        for model in models
        for n in range(shares)
    ]
    with (
        _compiling_environment(),
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
    ):
        return [record for records in pool.map(compile_share, tasks) for record in records]


@contextmanager
def _compiling_environment() -> Iterator[None]:
    """What the workers have to find when they import torch and Triton."""
    changes = {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": None}
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
