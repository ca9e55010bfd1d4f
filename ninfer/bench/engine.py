"""The engine at full size over random weights: prefill, decode, rounds, speculation, by context.

Decode is measured behind contexts that were not computed: pages hold random words. So a table needs
minutes, not hours, and its rates are those of real contexts, whose bytes are the same.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import torch

from ninfer.bench.engine_roof import (
    cache_bytes,
    memory_rate,
    operations,
    product_rate,
    weight_bytes,
)
from ninfer.bench.engine_scene import (
    BenchModel,
    Sizes,
    new_runtime,
    round_seconds,
    rounds_of,
    seat,
    seated,
    with_accept,
)
from ninfer.bench.machine import this_machine
from ninfer.bench.report import Findings, Report, Row
from ninfer.bench.simulated import SimulatedAcceptance, rate_for
from ninfer.engine.forms import choose_forms
from ninfer.errors import GenerationError, UsageError
from ninfer.ops.dispatch import REFERENCE, TRITON
from ninfer.request import SamplingParams
from ninfer.runtime import Runtime, SequenceRequest
from ninfer.runtime.rounds import RoundShape

# Prompts of the published matrix, in tokens.
CONTEXTS: Final = (7_680, 64_512, 130_048, 260_096)
MODELS: Final = ("qwen3.6-27b", "qwen3.6-35b-a3b")
# Tokens that a round of three MTP drafts gave where they were published.
TOKENS_A_ROUND: Final = {"qwen3.6-27b": 3.40, "qwen3.6-35b-a3b": 3.50}
NOTE: Final = "random weights and random contexts, no text; rates with simulated acceptance say so"
_HOST_LIMIT: Final = 30.0  # microseconds
_DRAFTS: Final = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    contexts: tuple[int, ...] = CONTEXTS
    rows: tuple[int, ...] = tuple(range(1, 17))
    batch: tuple[int, ...] = tuple(range(1, 17))
    rates: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 0.95)
    steps: int = 64  # of a decode figure
    segments: int = 5  # into which they are cut for a spread
    repeats: int = 25  # of a single round
    adaptive_steps: int = 512
    chunk: int = 1024
    short: int = 512  # tokens of the context where only the round matters
    whole_prompts: bool = True  # also prefill each context from its first token
    scale: str = "full"


QUICK: Final = Plan(
    rows=(1, 2, 4, 8, 16),
    batch=(1, 2, 4, 8, 16),
    rates=(0.1, 0.5, 0.95),
    steps=32,
    segments=3,
    repeats=11,
    adaptive_steps=160,
    whole_prompts=False,
)


@dataclass(frozen=True, slots=True)
class Roof:
    """What the machine gave in the same run."""

    memory: float  # bytes per second
    products: float  # operations per second

    def seconds(self, model: BenchModel, runtime: Runtime, context: int, sequences: int) -> float:
        """The least time of a plain decode step, by bytes alone."""
        text = model.config.text
        read = weight_bytes(model.weights, text, sequences)
        read += cache_bytes(runtime._runner.caches, text, context, sequences)
        return read / self.memory


def run(model: BenchModel, plan: Plan, seen: Callable[[Row], None] = lambda row: None) -> Findings:
    """Check that rounds give the tokens of plain steps, then measure; rates beside the roof.

    `seen` hears of each row at once. Raises GenerationError when they do not. Rounds that could not
    be captured are a failure.
    """
    roof = Roof(memory_rate(model.device), product_rate(model.device, model.dtype))
    check(model)
    failures: list[str] = []
    rows = []
    parts = (
        _plain(model, plan, roof, failures),
        _widths(model, plan, failures),
        _speculation(model, plan, failures),
    )
    for row in chain(*parts):
        seen(row)
        rows.append(row)
    return Findings(rows, NOTE, tuple(failures))


def _captures(model: BenchModel, runtime: Runtime, failures: list[str]) -> None:
    """Take down that rounds ran op by op because a capture failed."""
    failure = rounds_of(runtime).player.failure
    if failure is not None:
        failures.append(f"{model.like}: rounds ran op by op: {failure}")


def check(model: BenchModel, tokens: int = 12) -> None:
    """Raise GenerationError unless sequences in company, in rounds, get what they get alone."""
    kinds = (SamplingParams(), SamplingParams(temperature=1.0, seed=3, presence_penalty=1.0))
    asked = [
        SequenceRequest(tuple(range(5 + index, 40)), kinds[index % 2], tokens) for index in range(3)
    ]
    sizes = Sizes(context=256, sequences=3)
    plain = new_runtime(model, replace(sizes, in_rounds=False))
    expected = [_tokens(plain, [one])[0] for one in asked]
    del plain
    for drafts in (False, True):
        runtime = new_runtime(model, replace(sizes, window=1 + _DRAFTS * drafts), drafts=drafts)
        if _tokens(runtime, asked) != expected:
            raise GenerationError("decode rounds change the tokens; nothing was timed")
        if not rounds_of(runtime).played:
            raise GenerationError("no decode round was played; nothing was timed")


def _tokens(runtime: Runtime, asked: Sequence[SequenceRequest]) -> list[list[int]]:
    found: dict[Any, list[int]] = {runtime.submit(one): [] for one in asked}
    while runtime.has_work:
        for progress in runtime.step():
            if progress.error is not None:
                raise progress.error
            found[progress.sequence] += progress.tokens
    return list(found.values())


def _plain(model: BenchModel, plan: Plan, roof: Roof, failures: list[str]) -> Iterator[Row]:
    """Prefill, decode by context, and decode by number of sequences, all without drafts."""
    sizes = Sizes(max(plan.contexts), max(plan.batch), chunk=plan.chunk)
    runtime = new_runtime(model, sizes)
    rounds_of(runtime).warm_up()
    for context in plan.contexts:
        yield from _prefill(model, runtime, plan, roof, context)
        shape = _shape(model, context=context)
        yield from _decode(model, runtime, plan, roof, shape, context, 1)
    for count in plan.batch:
        shape = _shape(model, context=plan.short, sequences=count)
        yield from _decode(model, runtime, plan, roof, shape, plan.short, count)
    _captures(model, runtime, failures)


def _prefill(
    model: BenchModel, runtime: Runtime, plan: Plan, roof: Roof, context: int
) -> Iterator[Row]:
    """The last chunk of a prompt behind a context, and the whole prompt."""
    limit = roof.products / operations(model.weights, model.config.text)
    chunk = min(plan.chunk, context)
    seconds = []
    for _ in range(plan.segments + 1):
        sequence = seat(runtime, context, prefilled=context - chunk)
        seconds.append(_step_seconds(model, runtime))
        runtime.cancel(sequence)
    rates = sorted(chunk / s for s in seconds[1:])
    shape = _shape(model, context=context, chunk=chunk)
    yield _row("prefill, last chunk", shape, "tok/s", rates, ("products alone", limit))
    if not plan.whole_prompts:
        return
    sequence = seat(runtime, context, prefilled=0)
    total = 0.0
    while not sequence.generated:
        total += _step_seconds(model, runtime)
    runtime.cancel(sequence)
    rate = ("products alone", limit)
    yield _row("prefill", _shape(model, context=context), "tok/s", [context / total], rate)
    least = 1e3 * context / limit
    yield _row("TTFT", _shape(model, context=context), "ms", [1e3 * total], ("products", least))


def _step_seconds(model: BenchModel, runtime: Runtime) -> float:
    _wait(model)
    start = time.perf_counter()
    runtime.step()
    _wait(model)
    return time.perf_counter() - start


def _wait(model: BenchModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """What steps gave: rates of their segments, and where the time of a step went."""

    rates: list[float]  # tokens per second, ascending
    wall: float  # seconds of a step
    device: float  # of which in the round itself


def _decoded(runtime: Runtime, steps: int, segments: int, warm_up: int = 4) -> _Decoded:
    """Run steps of the sequences that are seated."""
    for _ in range(warm_up):
        runtime.step()
    rounds, rates = rounds_of(runtime), []
    played, device, total = rounds.played, rounds.device_seconds, 0.0
    for _ in range(segments):
        tokens, start = 0, time.perf_counter()
        for _ in range(-(-steps // segments)):
            tokens += sum(len(progress.tokens) for progress in runtime.step())
        seconds = time.perf_counter() - start
        total += seconds
        rates.append(tokens / seconds)
    played = rounds.played - played
    if not played:
        raise GenerationError("steps were no rounds; nothing was timed")
    return _Decoded(sorted(rates), total / played, (rounds.device_seconds - device) / played)


def _decode(
    model: BenchModel,
    runtime: Runtime,
    plan: Plan,
    roof: Roof,
    shape: dict[str, int | str],
    context: int,
    count: int,
) -> Iterator[Row]:
    """Tokens per second, the round's share of a step, and the host's time beside it."""
    with seated(runtime, context, count):
        found = _decoded(runtime, plan.steps, plan.segments)
    least = roof.seconds(model, runtime, context, count)
    yield _row("decode", shape, "tok/s", found.rates, ("bytes at memory's rate", count / least))
    share = 100 * found.device / found.wall
    yield _row("round over step", shape, "%", [share], ("all of it", 100.0))
    beside = 1e6 * (found.wall - found.device)
    yield _row("host beside the round", shape, "us", [max(beside, 0.0)], ("limit", _HOST_LIMIT))


def _widths(model: BenchModel, plan: Plan, failures: list[str]) -> Iterator[Row]:
    """Rounds of one sequence by their rows, drafts being given and wrong."""
    sizes = Sizes(plan.short, window=max(plan.rows), chunk=plan.chunk)
    runtime = new_runtime(model, sizes)
    single = 0.0
    for width in plan.rows:
        with seated(runtime, plan.short) as sequences:
            shape = RoundShape(1, width, given=width > 1)
            seconds = round_seconds(runtime, sequences, shape, plan.repeats)
        single = single or _middle(seconds)
        named = _shape(model, context=plan.short, rows=width)
        times = [1e3 * s for s in seconds]
        yield _row("round", named, "ms", times, (f"{plan.rows[0]} rows", 1e3 * single))
    _captures(model, runtime, failures)


def _speculation(model: BenchModel, plan: Plan, failures: list[str]) -> Iterator[Row]:
    """MTP rounds in plain steps, and what the window makes of simulated acceptance."""
    if not model.config.mtp:
        return
    none = new_runtime(model, Sizes(plan.short, chunk=plan.chunk))
    with seated(none, plan.short) as sequences:
        plain = _middle(round_seconds(none, sequences, RoundShape(1, 1), plan.repeats))
    with seated(none, plan.short):
        base = _middle(_decoded(none, plan.steps, plan.segments).rates)
    del none
    accept = SimulatedAcceptance(1.0, model.device)
    sizes = Sizes(plan.short, window=1 + _DRAFTS, chunk=plan.chunk)
    runtime = with_accept(new_runtime(model, sizes, drafts=True), accept)
    given = TOKENS_A_ROUND.get(model.like, 3.4)
    accept.set(rate_for(given, _DRAFTS))
    shape = _shape(model, context=plan.short, drafts=_DRAFTS)
    with seated(runtime, plan.short) as sequences:
        seconds = round_seconds(runtime, sequences, RoundShape(1, 1 + _DRAFTS), plan.repeats)
    times = [1e3 * s for s in seconds]
    yield _row("MTP round", shape, "ms", times, ("plain round", 1e3 * plain))
    rates = sorted(given / s for s in seconds)
    name = f"MTP decode, simulated acceptance of {given:.2f} tokens a round"
    yield _row(name, shape, "tok/s", rates, ("plain round", 1 / plain))
    del runtime
    runtime = with_accept(new_runtime(model, sizes, drafts=True, adaptive=True), accept)
    for rate in plan.rates:
        accept.set(rate)
        with seated(runtime, plan.short):
            found = _decoded(runtime, plan.adaptive_steps, plan.segments, warm_up=32)
        name = f"adaptive MTP, simulated acceptance {rate:g}"
        yield _row(name, shape, "tok/s", found.rates, ("without drafts", base))
    _captures(model, runtime, failures)


def _shape(model: BenchModel, **sizes: int) -> dict[str, int | str]:
    return {"like": model.like, **sizes}


def _middle(ascending: Sequence[float]) -> float:
    return sorted(ascending)[len(ascending) // 2]


def _row(
    name: str,
    shape: dict[str, int | str],
    unit: str,
    values: Sequence[float],
    reference: tuple[str, float],
) -> Row:
    return Row(
        name=name,
        shape=shape,
        unit=unit,
        value=_middle(values),
        low=min(values),
        high=max(values),
        repeats=len(values),
        reference_name=reference[0],
        reference=reference[1],
    )


def run_models(
    names: Sequence[str],
    plan: Plan,
    device: torch.device,
    dtype: torch.dtype,
    seen: Callable[[Row], None],
) -> Findings:
    """The findings of several models, one after the other in memory."""
    found = [run(BenchModel(name, plan.scale, device, dtype), plan, seen) for name in names]
    rows = [row for one in found for row in one.rows]
    return Findings(rows, NOTE, tuple(text for one in found for text in one.failures))


def run_on_this_machine(
    names: Sequence[str], *, quick: bool, scale: str | None, seen: Callable[[Row], None]
) -> Report:
    """The report of a card by its kernels; with a small scale also that of a processor.

    Raises UsageError without a card, and for an unknown model or scale.
    """
    for name in names:
        if name not in MODELS:
            raise UsageError(f"--model {name}: bench engine knows {', '.join(MODELS)}")
    has_card = torch.cuda.is_available()
    if not has_card and scale in (None, "full"):
        raise UsageError("bench engine: this machine has no CUDA device; --scale tiny runs on it")
    plan = replace(QUICK if quick else Plan(), scale=scale or "full")
    device = torch.device("cuda", torch.cuda.current_device()) if has_card else torch.device("cpu")
    choose_forms(device, TRITON if has_card else REFERENCE)
    dtype = torch.bfloat16 if has_card else torch.float32
    if plan.scale != "full":
        plan = replace(plan, contexts=(256, 1024), chunk=128, short=128, steps=8, adaptive_steps=32)
    found = run_models(names, plan, device, dtype, seen)
    return Report.now("engine", this_machine(str(device)), found)
