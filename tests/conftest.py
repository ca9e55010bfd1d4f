"""Shared fixtures: fixed seeds, one torch thread, NaN-filled empty tensors, audited runtimes."""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")

import random
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from ninfer.runtime import Runtime

torch.set_num_threads(1)

# A shell that starts the tests in its background may ignore Ctrl-C for all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine, however slow it is at the moment.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")


def pytest_configure(config: pytest.Config) -> None:
    """Triton kernels are interpreted, but in a run for a card; set before Triton is imported."""
    if config.option.markexpr != "gpu":
        os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    """Every test starts from the same random state."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


# Every runtime that some test or fixture has made and that is still alive.
_RUNTIMES: weakref.WeakSet[Runtime] = weakref.WeakSet()


@pytest.fixture(scope="session", autouse=True)
def recorded_runtimes() -> Iterator[None]:
    """Take down each runtime that is made."""
    original = Runtime.__init__

    def recorded(self: Runtime, *args, **kwargs) -> None:
        original(self, *args, **kwargs)
        _RUNTIMES.add(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "__init__", recorded)
        yield


@pytest.fixture(autouse=True)
def audited_runtimes() -> Iterator[None]:
    """After each test every page, slot and reference of every runtime adds up."""
    yield
    threads = {thread.name for thread in threading.enumerate()}
    for runtime in list(_RUNTIMES):
        # One that an inference thread drives at the moment has no state to look at.
        if not (runtime.has_work and "ninfer-inference" in threads):
            runtime.check()


@pytest.fixture(autouse=True)
def poisoned_empties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uninitialised memory holds NaN, so that an unwritten output never passes by luck."""
    for name in ("empty", "empty_like"):
        original = getattr(torch, name)

        def poisoned(*args, _original=original, **kwargs):
            out = _original(*args, **kwargs)
            if out.is_floating_point() and out.device.type != "meta":
                out.fill_(float("nan"))
            return out

        monkeypatch.setattr(torch, name, poisoned)


@pytest.fixture(scope="session")
def micro_artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Synthetic artifacts of about a million parameters, dense and MoE."""
    from ninfer.convert import synthesise

    folder = tmp_path_factory.mktemp("artifacts")
    paths = {}
    for kind, like in (("dense", "qwen3.6-27b"), ("moe", "qwen3.6-35b-a3b")):
        paths[kind] = folder / f"{kind}.ninfer"
        synthesise(paths[kind], like=like, scale="micro", seed=1)
    return paths


class Script:
    """A `TokenForcer` by which the model writes a given text, whatever it would have drawn."""

    is_done = False

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids
        self._place = 0

    def forced(self) -> int | None:
        return self._ids[self._place] if self._place < len(self._ids) else None

    def advance(self, token_id: int) -> None:
        self._place += 1


@pytest.fixture(scope="session")
def scripted() -> Callable[[Sequence[int]], Script]:
    """What makes the model of one sequence write these ids first."""
    return Script
