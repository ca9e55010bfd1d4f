"""AsyncEngine.start: who waits hears when it begins, and gets all that is ready at once."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ninfer.engine import AsyncEngine, Engine, EngineOptions, GenerationOptions
from ninfer.engine.program import ProgramOptions
from ninfer.errors import CapacityError, QueueTimeoutError, UsageError
from ninfer.request import GenerationResult, JsonObjectSpec, LogitBias

T = TypeVar("T")
OPTIONS = GenerationOptions(temperature=1.0, seed=1, max_new=30, thinking=False, raw_output=True)
LONG = replace(OPTIONS, max_new=200, program=ProgramOptions(ignore_stops=True))


def load(artifact: Path, **options: Any) -> Engine:
    """An engine with one place to run and three to wait."""
    sizes = {"max_context": 256, "max_concurrency": 1, "max_pending_requests": 3}
    return Engine.load(EngineOptions(artifact=artifact, device="cpu", **sizes, **options))


@pytest.fixture
def engine(micro_artifacts: dict[str, Path]) -> Engine:
    return load(micro_artifacts["dense"])


@pytest.fixture
def served(engine: Engine) -> Iterator[AsyncEngine]:
    served = AsyncEngine(engine)
    yield served
    asyncio.run(served.close())


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, timeout=120))


def test_begun_and_waiting_are_told_apart(micro_artifacts: dict[str, Path]) -> None:
    engine, late = load(micro_artifacts["dense"], pending_timeout_ms=600_000), 0.0
    engine._runtime._clock = lambda: time.monotonic() + late
    served = AsyncEngine(engine)
    prompt = engine.text.prompt_of_text("some words")

    async def scene() -> None:
        nonlocal late
        first = await served.start([prompt], LONG)
        await first.admitted()
        assert first.admitted_at is not None and first.admitted_at >= first.started
        second = await served.start([prompt], LONG)
        late = 601.0
        with pytest.raises(QueueTimeoutError):
            await second.admitted()
        late = 0.0
        assert second.ended
        first.close()
        third = await served.start([prompt], OPTIONS)
        await third.admitted()
        third.close()
        await served.close()

    run(scene())


def test_silence_is_told_after_its_time(engine: Engine, served: AsyncEngine) -> None:
    prompt = engine.text.prompt_of_text("some words")

    async def scene() -> None:
        first = await served.start([prompt], LONG)
        second = await served.start([prompt], LONG)
        assert await second.news(0.05) == [] and not second.ended
        second.close()
        assert second.ended and await second.news(1) == []
        first.close()

    run(scene())


def test_what_came_meanwhile_comes_at_once(engine: Engine, served: AsyncEngine) -> None:
    prompt = engine.text.prompt_of_text("some words")

    async def scene() -> None:
        running = await served.start([prompt], replace(LONG, max_new=20))
        await running.admitted()
        while engine.has_work:
            await asyncio.sleep(0.01)
        usages = running.usages()
        events = await running.news()
        last = events[-1][1]
        assert isinstance(last, GenerationResult) and len(events) > 5
        assert running.ended and usages[0].prompt_tokens == len(prompt.token_ids)

    run(scene())


def test_several_prompts_are_queued_together_or_not_at_all(
    engine: Engine, served: AsyncEngine
) -> None:
    prompts = [engine.text.prompt_of_text(text) for text in ("one", "two")]

    async def results(work: AsyncEngine, chosen: list[Any], count: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        running = await work.start(chosen, OPTIONS, count)
        while not running.ended:
            for index, event in await running.news():
                found[index] = event
        return {index: event.token_ids for index, event in found.items()}

    async def scene() -> None:
        both = await results(served, prompts, 2)
        for place, prompt in enumerate(prompts):
            alone = await results(served, [prompt], 2)
            assert [both[2 * place], both[2 * place + 1]] == [alone[0], alone[1]]
        with pytest.raises(CapacityError):
            await served.start(prompts * 3, OPTIONS)
        while engine.has_work:
            await asyncio.sleep(0.01)

    run(scene())


def test_salted_prefixes_are_kept_apart(engine: Engine) -> None:
    prompt = engine.text.prompt_of_text("a long beginning of a text " * 8)

    def cached(salt: bytes) -> int:
        options = replace(OPTIONS, max_new=1, program=ProgramOptions(cache_salt=salt))
        *_, last = engine.generate(prompt, options)
        assert isinstance(last, GenerationResult)
        return last.usage.cached_tokens

    assert [cached(b"") > 0 for _ in range(2)] == [False, True]
    assert [cached(b"a") > 0 for _ in range(2)] == [False, True]
    assert cached(b"b") == 0


def test_lengths_that_a_program_asks(engine: Engine) -> None:
    prompt = engine.text.prompt_of_text("some words")
    end = engine.text.encode("<|im_end|>")[0]

    def length(**program: Any) -> int:
        options = replace(
            OPTIONS, logit_bias=(), stop_token_id=(), program=ProgramOptions(**program)
        )
        biased = replace(
            options, greedy=True, temperature=None, logit_bias=(LogitBias(end, 100.0),)
        )
        *_, last = engine.generate(prompt, biased)
        assert isinstance(last, GenerationResult)
        return last.usage.completion_tokens

    assert length() == 1
    assert length(min_tokens=7) == 8
    assert length(ignore_stops=True) == 30
    with pytest.raises(UsageError, match="leave out min_tokens"):
        length(min_tokens=1, constraint=JsonObjectSpec())
    with pytest.raises(UsageError, match="min_tokens -1"):
        length(min_tokens=-1)
