"""Host time of a decode step outside the work of the device, for each sequence.

It takes in admission, planning, batch building, settings of the draws and random numbers,
acceptance, commits and the text events of every sequence. Of a step from the host the forward pass
with its output head and the ops that work on logits are left out, which are the model's share on
any backend; of a round on the device, all that is in its graph on a card.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ninfer.bench.engine_batch import check, prompt_of
from ninfer.bench.engine_cpu import LIKE
from ninfer.bench.report import Row
from ninfer.convert import synthesise
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.models.forward_batch import ForwardBatch
from ninfer.ops import dispatch
from ninfer.runtime.model_runner import ModelRunner, Pass
from ninfer.runtime.rounds import DecodeRounds
from ninfer.runtime.rounds.graphs import EagerPlayer

COUNTS: Final = (1, 8, 64)
# Microseconds that a round may take for each sequence.
LIMIT: Final = 50.0
KINDS: Final[dict[str, dict[str, Any]]] = {
    "greedy": {"greedy": True},
    "sampled": {"temperature": 1.0, "presence_penalty": 0.0},
    "penalised": {"temperature": 1.0, "presence_penalty": 1.5},
}
_SAMPLING_OPS: Final = (
    "add_bias",
    "argmax",
    "finite_rows",
    "mask",
    "penalise",
    "sample",
)
_BACKEND: Final = "stopwatch"


class Stopwatch:
    """Adds up the seconds of calls; a call inside another one counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of the block."""
        start = time.perf_counter()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.seconds += time.perf_counter() - start

    def over(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call under that name, its time counted."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.running():
                return call(*args, **kwargs)

        timed.__name__ = name
        return timed


class TimedRunner(ModelRunner):
    """A runner whose passes are counted; it takes over weights and caches of another."""

    def __init__(self, runner: ModelRunner, watch: Stopwatch) -> None:
        vars(self).update(vars(runner))
        self._watch = watch

    def run(self, batch: ForwardBatch, taps: Any = ()) -> Pass:
        """See ModelRunner."""
        with self._watch.running():
            return super().run(batch, taps)


@contextmanager
def left_out(engine: Engine) -> Iterator[Stopwatch]:
    """Count what the model and the sampling ops take inside the block."""
    watch, runtime = Stopwatch(), engine._runtime
    if runtime.rounds is not None:
        with _played(runtime.rounds, watch):
            yield watch
        return
    forms = dispatch.current(_SAMPLING_OPS)
    dispatch.register(_BACKEND, *(watch.over(name, form) for name, form in forms.items()))
    runner = runtime._runner
    runtime._runner = TimedRunner(runner, watch)
    try:
        with dispatch.using(_BACKEND, only=_SAMPLING_OPS):
            yield watch
    finally:
        runtime._runner = runner


@contextmanager
def _played(rounds: DecodeRounds, watch: Stopwatch) -> Iterator[None]:
    player = rounds.player
    assert isinstance(player, EagerPlayer)
    play = player.play
    player.play = watch.over("play", play)
    try:
        yield
    finally:
        player.play = play


def host_times(engine: Engine, kind: str, count: int, rounds: int, seed: int) -> list[float]:
    """Microseconds for each sequence of `rounds` rounds in which `count` sequences all decode."""
    made = {}
    for index in range(seed, seed + count):
        options = GenerationOptions(max_new=count + 2 * rounds, seed=index, **KINDS[kind])
        sequence, session = engine.submit(prompt_of(engine, index), options)
        # Random weights say stop at any time, and a company that thins out measures nothing.
        sequence.stop_ids = frozenset({-1})
        made[sequence] = session
    found: list[float] = []
    with left_out(engine) as watch:
        while len(found) < rounds:
            decoding = all(sequence.decodes for sequence in made)
            outside, start = watch.seconds, time.perf_counter()
            for progress in engine.step():
                for _ in made[progress.sequence].feed(progress):
                    pass
            spent = time.perf_counter() - start - (watch.seconds - outside)
            if decoding:
                found.append(1e6 * spent / count)
    for sequence in made:
        engine.cancel(sequence)
    return found


def row_of(engine: Engine, kind: str, count: int, rounds: int, repeats: int) -> Row:
    """The median round of `repeats` companies, without the first two rounds of each."""
    medians = sorted(
        statistics.median(host_times(engine, kind, count, rounds + 2, 1000 * turn)[2:])
        for turn in range(repeats)
    )
    return Row(
        name=f"{'host' if engine._runtime.rounds is None else 'round'}, {kind}",
        shape={"like": LIKE, "sequences": count},
        unit="us/sequence",
        value=medians[repeats // 2],
        low=medians[0],
        high=medians[-1],
        repeats=repeats,
        reference_name="limit",
        reference=LIMIT,
    )


def run(*, scale: str = "micro", rounds: int = 16, repeats: int = 3) -> list[Row]:
    """Check, then time steps by way, kind of sampling and number of sequences."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.ninfer"
        synthesise(path, like=LIKE, scale=scale)
        rows = []
        for in_rounds in (False, True):
            options = EngineOptions(
                artifact=path,
                device="cpu",
                max_concurrency=max(COUNTS),
                max_context=512,
                cuda_graph=in_rounds,
            )
            engine = Engine.load(options)
            check(engine, 8)
            rows += [
                row_of(engine, kind, count, rounds, repeats) for kind in KINDS for count in COUNTS
            ]
        return rows
