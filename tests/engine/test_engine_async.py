"""AsyncEngine: concurrent callers get what they would get alone; leaving early frees everything."""

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ninfer.engine import AsyncEngine, Engine, EngineOptions, GenerationOptions
from ninfer.errors import CapacityError, UsageError
from ninfer.request import (
    ContentPart,
    Conversation,
    GenerationResult,
    Message,
    PreparedPrompt,
    TemplateOptions,
)

T = TypeVar("T")
SAMPLED = GenerationOptions(temperature=1.0, seed=1, max_new=20, thinking=False)


@pytest.fixture
def engine(micro_artifacts: dict[str, Path]) -> Engine:
    options = EngineOptions(
        artifact=micro_artifacts["dense"], max_context=256, device="cpu", max_concurrency=4
    )
    return Engine.load(options)


@pytest.fixture
def served(engine: Engine) -> Iterator[AsyncEngine]:
    served = AsyncEngine(engine)
    yield served
    asyncio.run(served.close())


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, timeout=120))


def prompt_of(engine: Engine | AsyncEngine, text: str) -> PreparedPrompt:
    message = Message("user", (ContentPart("text", text),))
    options = TemplateOptions(enable_thinking=False)
    return engine.prepare(Conversation((message,), template=options))


async def result_of(served: AsyncEngine, text: str, options: GenerationOptions) -> GenerationResult:
    async for event in served.generate(prompt_of(served, text), options):
        last = event
    assert isinstance(last, GenerationResult)
    return last


def test_concurrent_callers_get_what_they_get_alone(engine: Engine) -> None:
    texts = [f"question {index}" for index in range(12)]
    settings = [replace(SAMPLED, seed=index) for index in range(12)]
    expected = []
    for text, options in zip(texts, settings, strict=True):
        *_, last = engine.generate(prompt_of(engine, text), options)
        assert isinstance(last, GenerationResult)
        expected.append(last.token_ids)
    served = AsyncEngine(engine)

    async def together() -> list[GenerationResult]:
        pairs = zip(texts, settings, strict=True)
        results = await asyncio.gather(*(result_of(served, *pair) for pair in pairs))
        await served.close()
        return results

    assert [result.token_ids for result in run(together())] == expected
    assert not engine.has_work


def test_a_bad_request_harms_no_other(served: AsyncEngine) -> None:
    async def mixed() -> tuple[GenerationResult, object]:
        good = asyncio.ensure_future(result_of(served, "hi", SAMPLED))
        with pytest.raises(UsageError, match="--max-new -1"):
            await result_of(served, "hi", replace(SAMPLED, max_new=-1))
        return await good, None

    assert run(mixed())[0].usage.completion_tokens > 0


def test_j2_leaving_early_frees_pages_and_slot(served: AsyncEngine, engine: Engine) -> None:
    """J2: a caller that stops reading, or whose task is cancelled, holds nothing afterwards."""

    async def leave() -> None:
        events = served.generate(prompt_of(served, "hi"), replace(SAMPLED, max_new=200))
        async for _ in events:
            break
        await events.aclose()
        for delay in (0.0, 0.001, 0.01, 0.05):
            task = asyncio.ensure_future(result_of(served, "hi", replace(SAMPLED, max_new=200)))
            await asyncio.sleep(delay)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        # A whole generation after them: the thread has seen every command before it.
        await result_of(served, "hi", SAMPLED)
        for _ in range(6000):
            if not engine.has_work:
                break
            await asyncio.sleep(0.01)

    run(leave())
    assert not engine.has_work


def test_a_full_queue_is_an_error_of_the_caller_alone(served: AsyncEngine) -> None:
    async def flood() -> list[object]:
        work = [result_of(served, f"q{i}", replace(SAMPLED, max_new=40)) for i in range(40)]
        return await asyncio.gather(*work, return_exceptions=True)

    results = run(flood())
    refused = [result for result in results if isinstance(result, CapacityError)]
    assert refused and all(isinstance(r, CapacityError | GenerationResult) for r in results)
    assert len(results) - len(refused) >= 20


def test_closing_ends_the_thread_and_the_work(engine: Engine) -> None:
    served = AsyncEngine(engine)

    async def close() -> None:
        events = served.generate(prompt_of(served, "hi"), replace(SAMPLED, max_new=200))
        await anext(events)
        await served.close()

    run(close())
    assert not engine.has_work
