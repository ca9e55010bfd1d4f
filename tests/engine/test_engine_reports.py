"""Public reports on hangs and dead engines, tried on this one; named by id."""

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from test_engine_async import prompt_of, result_of, run

from ninfer.engine import AsyncEngine, Engine, EngineOptions, GenerationOptions
from ninfer.request import FinishReason, GenerationResult, TextDelta

GREEDY = GenerationOptions(greedy=True, max_new=12, thinking=False)


@pytest.fixture(scope="module")
def engine(micro_artifacts: dict[str, Path]) -> Iterator[Engine]:
    options = EngineOptions(
        micro_artifacts["dense"],
        max_context=2048,
        device="cpu",
        max_concurrency=2,
        prefill_chunk=128,
    )
    yield Engine.load(options)


class Forced:
    """A constraint that leaves one id at each place."""

    is_finished = may_stop = False

    def __init__(self, ids: Sequence[int], bound: int) -> None:
        self._ids, self._bound, self._taken = ids, bound, 0

    def allowed(self) -> bytes:
        token = self._ids[self._taken % len(self._ids)]
        return (1 << token).to_bytes(4 * -(-self._bound // 32), "little")

    def advance(self, token_id: int) -> bool:
        self._taken += 1
        return True


def test_g1_malformed_bytes_are_one_requests_text(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report: a byte that is no UTF-8 killed the engine for the rest of its life."""
    *_, expected = engine.generate(prompt_of(engine, "hi"), GREEDY)
    tokenizer, bound = engine._model.frontend.tokenizer, engine._model.config.text.addressable
    of_byte = {}
    for token in range(bound):
        data = tokenizer.token_bytes(token)
        if data is not None and len(data) == 1:
            of_byte.setdefault(data[0], token)
    for data, text in (
        (b"\xff", "\ufffd" * 12),
        (b"\xe2A", "\ufffdA" * 6),
        (b"ab\xf0\x9f\x98", None),
    ):
        ids = [of_byte[byte] for byte in data]
        forced = partial(Forced, ids, bound)
        monkeypatch.setattr(engine._model.frontend, "new_constraint", lambda *_, f=forced: f())
        events = list(engine.generate(prompt_of(engine, "hi"), replace(GREEDY, json=True)))
        shown = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert isinstance(events[-1], GenerationResult)
        assert events[-1].usage.completion_tokens == 12
        assert text is None or shown == text
        assert "\ufffd" in shown
    monkeypatch.undo()
    *_, again = engine.generate(prompt_of(engine, "hi"), GREEDY)
    assert isinstance(again, GenerationResult) and isinstance(expected, GenerationResult)
    assert again.token_ids == expected.token_ids


@pytest.mark.parametrize("queued", [False, True])
def test_j1_leaving_a_long_prefill_costs_at_most_one_chunk(
    engine: Engine, queued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report: a client that left during prefill held its slot until the prompt was done."""
    steps: list[int] = []
    original = engine.step

    def counted() -> object:
        steps.append(1)
        if len(steps) == 2:
            inside.set()
            assert left.wait(60)
        return original()

    inside, left = threading.Event(), threading.Event()
    monkeypatch.setattr(engine, "step", counted)
    served = AsyncEngine(engine)

    async def leave() -> None:
        tasks = [
            asyncio.ensure_future(result_of(served, f"{i} " + "word " * 400, GREEDY))
            for i in range(3 if queued else 1)
        ]
        assert await asyncio.to_thread(inside.wait, 60)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        left.set()
        while engine.has_work:
            await asyncio.sleep(0.001)
        # The step under way when the news came, and none that started behind it.
        assert len(steps) <= 3
        await served.close()

    run(leave())
    assert engine._runtime.slots.free_count == 2


def test_j2_a_caller_that_stops_reading_stops_the_work(engine: Engine) -> None:
    served = AsyncEngine(engine)

    async def stop() -> None:
        events = served.generate(prompt_of(served, "hi"), replace(GREEDY, max_new=1000))
        await anext(events)
        await events.aclose()
        for _ in range(12_000):
            if not engine.has_work:
                break
            await asyncio.sleep(0.005)
        assert not engine.has_work
        await served.close()

    run(stop())


def test_j5_a_cancelled_answer_is_no_error(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """The report: the log called it a failure of the server. Here it is an end with its name."""
    served = AsyncEngine(engine)

    async def leave() -> None:
        events = served.generate(prompt_of(served, "hi"), replace(GREEDY, max_new=1000))
        await anext(events)
        await events.aclose()
        rest = asyncio.ensure_future(
            result_of(served, "hi", replace(GREEDY, max_new=1000, stop_token_id=()))
        )
        await asyncio.sleep(0.05)
        await served.close()
        assert (await rest).finish_reason is FinishReason.CANCELLED

    with caplog.at_level(logging.DEBUG, "ninfer"):
        run(leave())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not engine.has_work
