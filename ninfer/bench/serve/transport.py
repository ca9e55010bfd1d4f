"""Tokens a second through HTTP beside the same generations of an engine without a server."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any, Final

from ninfer.audit import Origin, StoredResponse, Timings, TokenCounts
from ninfer.bench.isolated import isolated
from ninfer.bench.report import Findings, Row
from ninfer.bench.serve.asking import Asker, Served, responses_of
from ninfer.bench.serve.drive import drive
from ninfer.bench.serve.load import Arrival, Texts
from ninfer.bench.serve.options import ServeLoadOptions, TransportOptions
from ninfer.client import ChatServer
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.engine.generation_options import template_options
from ninfer.errors import GenerationError, ServerError
from ninfer.frontend import parse_conversation
from ninfer.options import arguments_of
from ninfer.request import GenerationResult, TextDelta

# Text is drawn as the model weighs it, without penalties, alike on both sides.
_DRAWING: Final = {"temperature": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
_LIMIT_S: Final = 3600.0
_START_S: Final = 900.0
_SERVING: Final = re.compile(r"serving .* at (http://\S+?:[0-9]+)")


@dataclass(frozen=True, slots=True)
class Run:
    """Streams that began together: seconds until the last ended, and what they wrote."""

    seconds: float
    responses: tuple[StoredResponse, ...]

    @property
    def rate(self) -> float:
        """Tokens a second over all streams."""
        return sum(one.usage.completion or 0 for one in self.responses) / self.seconds

    @property
    def ids(self) -> list[tuple[int, ...] | None]:
        """The token ids of each stream."""
        return [one.token_ids for one in self.responses]


@dataclass(frozen=True, slots=True)
class _Job:
    """What a process without a server does."""

    engine: EngineOptions
    options: TransportOptions


def measure_transport(
    options: TransportOptions, engine: EngineOptions
) -> tuple[Findings, list[StoredResponse]]:
    """Rows by number of streams, and the responses of the last run of each, both ways.

    The engine alone and the server have a process each, one after the other, so that one model is
    in memory at a time. A number of streams whose ids differ between the two has no row. Raises
    GenerationError or ServerError when one of them does not do its work.
    """
    engine = replace(engine, max_concurrency=max(options.counts), prefix_cache_mib=0)
    ((_, alone, why),) = isolated([_Job(engine, options)], run_alone, _LIMIT_S)
    if alone is None:
        raise GenerationError(f"the engine without a server: {why}")
    served = _run_served(engine, options)
    rows, failures, responses = [], [], []
    for count in options.counts:
        direct, through = alone[count], served[count]
        responses += [*direct[-1].responses, *through[-1].responses]
        if direct[-1].ids != through[-1].ids or None in through[-1].ids:
            failures.append(f"{count} streams: other ids through HTTP than without; not timed")
            continue
        rows.append(_row(count, direct, through, options))
    return Findings(rows, failures=tuple(failures)), responses


def _row(
    count: int, direct: Sequence[Run], through: Sequence[Run], options: TransportOptions
) -> Row:
    plain, rates = (sorted(run.rate for run in runs) for runs in (direct, through))
    shape = {"streams": count, "prompt": options.prompt_tokens, "max_new": options.max_new}
    middle = len(rates) // 2
    return Row(
        name="through HTTP",
        shape=shape,
        unit="tok/s",
        value=rates[middle],
        low=rates[0],
        high=rates[-1],
        repeats=len(rates),
        reference_name="in-process",
        reference=plain[middle],
    )


def _arrivals(options: TransportOptions, count: int) -> list[Arrival]:
    return [
        Arrival(number, None, options.prompt_tokens, options.max_new, 0, options.seed + number)
        for number in range(count)
    ]


def run_alone(job: _Job) -> dict[int, list[Run]]:
    """Runs of an engine in this process by number of streams; the first of each is not kept."""
    engine = Engine.load(job.engine)
    try:
        return {
            count: [_alone(engine, job, count) for _ in range(1 + job.options.repeats)][1:]
            for count in job.options.counts
        }
    finally:
        engine.close()


def _alone(engine: Engine, job: _Job, count: int) -> Run:
    asked = []
    for arrival in _arrivals(job.options, count):
        drawing: dict[str, Any] = {**_DRAWING}
        generation = GenerationOptions(
            max_new=arrival.output_tokens, thinking=False, seed=arrival.seed, **drawing
        )
        text = Texts(_as_load(job.options)).prompt(arrival)
        messages = [{"role": "user", "content": text}]
        conversation = parse_conversation(messages, None, template_options(generation))
        asked.append((engine.prepare(conversation), generation))
    start = time.perf_counter()
    found = []
    for number, events in enumerate([engine.generate(*one) for one in asked]):
        text = ""
        for event in events:
            if isinstance(event, TextDelta):
                text += event.text
            elif isinstance(event, GenerationResult):
                found.append(_stored(job, number, text, event))
    return Run(time.perf_counter() - start, tuple(found))


def _stored(job: _Job, number: int, text: str, result: GenerationResult) -> StoredResponse:
    return StoredResponse(
        fixture="load",
        case=f"stream {number}",
        text=text,
        finish_reason=str(result.finish_reason),
        category="in-process",
        mode="in-process",
        seed=job.options.seed + number,
        request={"max_tokens": job.options.max_new},
        token_ids=result.token_ids,
        usage=TokenCounts(result.usage.prompt_tokens, result.usage.completion_tokens),
        timings=Timings(prefill=result.prefill_seconds, decode=result.decode_seconds),
        origin=Origin(model=job.engine.artifact.name, software="ninfer"),
    )


def _run_served(engine: EngineOptions, options: TransportOptions) -> dict[int, list[Run]]:
    with serving_process(engine) as root, ChatServer(root, connections=max(options.counts)) as http:
        load = _as_load(options)
        asker = Asker(http, http.models()[0].id, Texts(load), load, _DRAWING)
        return {
            count: [_served(asker, options, count) for _ in range(1 + options.repeats)][1:]
            for count in options.counts
        }


def _served(asker: Asker, options: TransportOptions, count: int) -> Run:
    served: list[Served] = drive(_arrivals(options, count), asker.ask, count)
    seconds = max(one.ended for one in served) - min(one.sent for one in served)
    responses = [
        replace(one, case=f"stream {number}", category="HTTP", mode="HTTP")
        for number, one in enumerate(responses_of(served))
    ]
    return Run(seconds, tuple(responses))


def _as_load(options: TransportOptions) -> ServeLoadOptions:
    return ServeLoadOptions(seed=options.seed)


@contextmanager
def serving_process(engine: EngineOptions) -> Iterator[str]:
    """`ninfer serve` in a process of its own on a free port; its address.

    Raises ServerError with its last words when it ends before it serves.
    """
    command = [sys.executable, "-m", "ninfer", "serve", str(engine.artifact), "--port", "0"]
    command += [*arguments_of(engine), "--drain-s", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            yield _address(process.stderr)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _address(words: IO[str]) -> str:
    """Read what a server says until it serves, and then throw away the rest as it comes."""
    last = ""
    end = time.monotonic() + _START_S
    for line in words:
        found = _SERVING.search(line)
        if found:
            threading.Thread(target=lambda: [None for _ in words], daemon=True).start()
            return found[1]
        last = line.strip() or last
        if time.monotonic() > end:
            break
    raise ServerError(f"ninfer serve did not begin to serve: {last[:500]}")
