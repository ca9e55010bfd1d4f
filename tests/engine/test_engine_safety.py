"""AsyncEngine in trouble: stalled and failing steps, shutdown; whoever waits hears how it ends."""

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_engine_async import SAMPLED, prompt_of, result_of, run

from ninfer.engine import AsyncEngine, Engine, EngineOptions
from ninfer.errors import QueueTimeoutError, RequestFailedError, UnavailableError
from ninfer.request import FinishReason, GenerationResult, TextDelta

LONG = replace(SAMPLED, max_new=150)


class Clock:
    """A time that only the test moves, so that a busy machine stalls nothing."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def engine(micro_artifacts: dict[str, Path]) -> Engine:
    options = EngineOptions(
        artifact=micro_artifacts["dense"],
        max_context=256,
        device="cpu",
        max_concurrency=2,
        spec="mtp",
        draft_tokens=2,
        max_pending_requests=64,
    )
    return Engine.load(options)


class Gate:
    """Blocks the engine's step, or a call of it, when it is shut."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch, name: str = "step") -> None:
        self.inside = threading.Event()
        self.clock = Clock()
        self._open = threading.Event()
        self._open.set()
        original: Callable[..., object] = getattr(engine, name)

        def gated(*args: object, **kwargs: object) -> object:
            if not self._open.is_set():
                self.inside.set()
                assert self._open.wait(120)
            return original(*args, **kwargs)

        monkeypatch.setattr(engine, name, gated)

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def entered(self, seconds: float) -> None:
        """Someone is inside, and has been for so long."""
        assert await asyncio.to_thread(self.inside.wait, 120)
        self.clock.now += seconds


@pytest.fixture
def stalling(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AsyncEngine, Gate]]:
    gate = Gate(engine, monkeypatch)
    served = AsyncEngine(engine, step_timeout=0.4, clock=gate.clock)
    yield served, gate
    gate.open()
    asyncio.run(served.close())
    # A close that did not wait for the stalled step leaves the thread to finish it.
    served._thread.join(120)
    assert not served._thread.is_alive()


async def settled(engine: Engine, served: AsyncEngine) -> None:
    for _ in range(5000):
        if not engine.has_work and served.is_ready:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not idle: {engine.describe()}")


def test_j8_a_stalled_step_fails_everyone_who_waits_and_is_recovered_from(
    stalling: tuple[AsyncEngine, Gate], engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """J8: running >= 1 with 0 tokens/s for ever is noticed, told, and left behind."""
    served, gate = stalling

    async def scene() -> None:
        expected = await result_of(served, "hi", SAMPLED)
        gate.shut()
        waiting = [asyncio.ensure_future(result_of(served, f"q{i}", LONG)) for i in range(5)]
        await gate.entered(0.3)
        await asyncio.sleep(0.2)
        assert served.is_ready
        gate.clock.now += 0.2
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(end, UnavailableError) for end in ends), ends
        assert len({str(end) for end in ends}) == 1
        assert "longer than --step-timeout-s allows" in str(ends[0])
        assert not served.is_ready and served.trouble is ends[0]
        with pytest.raises(UnavailableError):
            await result_of(served, "later", SAMPLED)
        gate.open()
        await settled(engine, served)
        assert await result_of(served, "hi", SAMPLED) == replace(
            expected,
            prefill_seconds=pytest.approx(0, abs=60),
            decode_seconds=pytest.approx(0, abs=60),
        )

    with caplog.at_level(logging.WARNING, "ninfer"):
        run(scene())
    stalls = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(stalls) == 1 and "pages" in stalls[0] and "running" in stalls[0]
    assert "serves again" in caplog.text
    engine.check()


def test_a_call_that_stalls_is_noticed_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queuing a request, for one."""
    gate = Gate(engine, monkeypatch, "submit_requests")
    served = AsyncEngine(engine, step_timeout=0.3, clock=gate.clock)

    async def scene() -> None:
        gate.shut()
        waiting = asyncio.ensure_future(result_of(served, "hi", SAMPLED))
        await gate.entered(0.4)
        with pytest.raises(UnavailableError, match="--step-timeout-s"):
            await waiting
        gate.open()
        await settled(engine, served)
        assert (await result_of(served, "hi", SAMPLED)).token_ids
        await served.close()

    run(scene())
    assert not engine.has_work


def test_closing_does_not_wait_for_a_stalled_step(
    stalling: tuple[AsyncEngine, Gate],
) -> None:
    served, gate = stalling

    async def scene() -> None:
        gate.shut()
        waiting = asyncio.ensure_future(result_of(served, "hi", LONG))
        await gate.entered(0.5)
        await served.close(drain=50)
        with pytest.raises(UnavailableError):
            await waiting

    run(scene())


def test_an_error_of_a_step_ends_every_caller(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter(range(1000))
    original = engine.step

    def failing() -> object:
        if next(steps) == 3:
            raise RuntimeError("device lost")
        return original()

    monkeypatch.setattr(engine, "step", failing)
    served = AsyncEngine(engine)

    async def scene() -> None:
        work = [result_of(served, f"q{i}", LONG) for i in range(6)]
        ends = await asyncio.gather(*work, return_exceptions=True)
        assert all(isinstance(end, UnavailableError) for end in ends), ends
        assert "RuntimeError: device lost" in str(ends[0])
        assert not served.is_ready
        with pytest.raises(UnavailableError, match="restart it"):
            await result_of(served, "later", SAMPLED)
        await served.close(drain=5)
        await served.close()

    run(scene())


def test_an_audit_that_does_not_add_up_fails_the_engine(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = AsyncEngine(engine, audit_every=0)

    async def scene() -> None:
        assert (await result_of(served, "hi", SAMPLED)).token_ids
        monkeypatch.setattr(engine._runtime.pages, "_owners", [9] * engine._runtime.pages.capacity)
        with pytest.raises(UnavailableError, match="AssertionError"):
            for _ in range(3):
                await result_of(served, "hi", SAMPLED)
        assert not served.is_ready
        await served.close()

    run(scene())
    monkeypatch.undo()


def test_j7_a_request_that_cannot_be_started_harms_no_other(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J7: whatever the constraint's compiler raises, it is that caller's error."""

    def compiled(prompt, spec):
        raise TypeError("odd schema")

    monkeypatch.setattr(engine._model.frontend, "new_constraint", compiled)
    served = AsyncEngine(engine)

    async def scene() -> None:
        expected = await result_of(served, "hi", LONG)
        good = asyncio.ensure_future(result_of(served, "hi", LONG))
        for _ in range(20):
            with pytest.raises(RequestFailedError, match="odd schema"):
                await result_of(served, "hi", replace(SAMPLED, json=True))
        assert (await good).token_ids == expected.token_ids
        assert served.is_ready
        await served.close()

    run(scene())


def test_closing_cancels_and_draining_lets_finish(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = AsyncEngine(engine)
    gate = Gate(engine, monkeypatch)

    async def scene() -> None:
        whole = (await result_of(served, "hi", SAMPLED)).token_ids
        work = [asyncio.ensure_future(result_of(served, "hi", SAMPLED)) for _ in range(5)]
        await asyncio.sleep(0.05)
        closing = asyncio.ensure_future(served.close(drain=100))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="is closing"):
            await result_of(served, "late", SAMPLED)
        assert [result.token_ids for result in await asyncio.gather(*work)] == [whole] * 5
        await closing
        other = AsyncEngine(engine)
        gate.shut()
        work = [asyncio.ensure_future(result_of(other, "hi", LONG)) for _ in range(5)]
        await gate.entered(0)
        closing = asyncio.ensure_future(other.close())
        await asyncio.sleep(0)
        gate.open()
        await closing
        ends = await asyncio.gather(*work)
        assert {end.finish_reason for end in ends} == {FinishReason.CANCELLED}

    run(scene())
    assert not engine.has_work
    engine.check()


def test_a_caller_whose_loop_is_gone_stops_nobody(engine: Engine) -> None:
    served = AsyncEngine(engine)

    async def abandon() -> None:
        # The generator is kept, so that nothing closes it with its loop.
        kept.append(served.generate(prompt_of(served, "hi"), LONG))
        await anext(kept[0])

    kept: list = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(abandon())
    loop.close()
    assert run(result_of(served, "hi", SAMPLED)).token_ids
    assert served.is_ready
    asyncio.run(served.close())


def test_time_limits_reach_the_callers(engine: Engine) -> None:
    served = AsyncEngine(engine)

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        assert (await result_of(served, "hi", replace(LONG, deadline_ms=1))).finish_reason in (
            FinishReason.DEADLINE,
        )
        with pytest.raises(QueueTimeoutError):
            async for _ in served.generate(
                prompt_of(served, "hi"), SAMPLED, arrived=loop.time() - 31
            ):
                pass
        await served.close()

    run(scene())


def test_j4_the_turn_after_an_abort_is_right(engine: Engine) -> None:
    """J4: usage and text of a continued session are those of a session that was not aborted."""
    *_, expected = engine.generate(prompt_of(engine, "first question"), SAMPLED)
    assert isinstance(expected, GenerationResult)
    served = AsyncEngine(engine)

    async def scene() -> GenerationResult:
        for seen in range(3):
            events = served.generate(prompt_of(served, "first question"), LONG)
            for _ in range(seen):
                assert isinstance(await anext(events), TextDelta)
            await events.aclose()
        last = await result_of(served, "first question", SAMPLED)
        await served.close()
        return last

    last = run(scene())
    assert last.usage == expected.usage
    assert last.token_ids == expected.token_ids


def test_j1_j2_tasks_cancelled_at_any_moment_leave_nothing(engine: Engine) -> None:
    """J1, J2: through the thread, with constraints, drafts and prefixes."""
    served, draw = AsyncEngine(engine, audit_every=0), random.Random(5)

    async def scene() -> None:
        expected = await result_of(served, "question 1", SAMPLED)
        for _ in range(6):
            tasks = [
                asyncio.ensure_future(
                    result_of(
                        served,
                        f"question {draw.randrange(4)}" * draw.randint(1, 3),
                        replace(LONG, json=draw.random() < 0.3),
                    )
                )
                for _ in range(6)
            ]
            kept = asyncio.ensure_future(result_of(served, "question 1", SAMPLED))
            for task in tasks:
                await asyncio.sleep(draw.choice((0.0, 0.001, 0.01)))
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(end) for end in ends} <= {asyncio.CancelledError, GenerationResult}
            assert (await kept).token_ids == expected.token_ids
        await settled(engine, served)
        await served.close()

    run(scene())
    assert not engine.has_work
    runtime = engine._runtime
    assert runtime.prefixes is not None and runtime.speculation is not None
    assert not runtime.speculation.known
    runtime.prefixes.cache.clear()
    assert runtime.pages.free_count == runtime.pages.capacity
    assert runtime.slots.free_count == 2
