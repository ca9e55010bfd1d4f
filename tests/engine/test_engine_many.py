"""Several answers to one prompt: each what its seed gives alone, each closed on its own."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from test_engine_speculation import artifacts, ask, load  # noqa: F401  # a fixture of that file

from ninfer.engine import AsyncEngine, Engine, GenerationOptions
from ninfer.errors import UsageError
from ninfer.request import GenerationResult, PrefixMiss, TextDelta

OPTIONS = GenerationOptions(
    temperature=1.0, presence_penalty=0.5, max_new=24, seed=2**64 - 2, logprobs=1
)
TEXT = "What is a state slot, and what is a page? " * 2


def outcome(result: GenerationResult) -> tuple[object, ...]:
    """All but what the prefix cache had, which does not depend on the request alone."""
    usage = replace(result.usage, cached_tokens=0)
    return result.token_ids, result.logprobs, result.finish_reason, usage


def singles(engine: Engine, count: int, options: GenerationOptions) -> list[tuple[object, ...]]:
    found = []
    for index in range(count):
        seeded = replace(options, seed=(options.seed + index) % 2**64)
        *_, last = engine.generate(ask(engine, TEXT), seeded)
        assert isinstance(last, GenerationResult)
        found.append(outcome(last))
    return found


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("dense", None), ("dense", "mtp"), ("moe", "dflash"), ("dflash2", "dflash2")],
)
def test_each_answer_is_that_of_its_seed(
    artifacts: dict[str, Path],  # noqa: F811  # the fixture
    kind: str,
    spec: str | None,
) -> None:
    engine = load(artifacts[kind], spec=spec, adaptive_drafts=False)
    options = replace(OPTIONS, stop=("a",))
    expected = singles(load(artifacts[kind], prefix_cache_mib=0), 4, options)
    for visit in range(2):
        generations = engine.generate_many(ask(engine, TEXT), options, 4)
        found = []
        for generation in generations:
            *_, last = generation
            assert isinstance(last, GenerationResult)
            found.append(outcome(last))
            # Those that inherit the prompt have of it in the cache what the first one had.
            assert last.usage.cached_tokens == 64 * visit
            assert last.prefix_miss == (None if visit else PrefixMiss("no_match"))
        assert found == expected
        engine.check()
        assert not engine.has_work
    assert len({ids for ids, *_ in expected}) > 1


@pytest.mark.parametrize(("kind", "spec"), [("dense", "mtp"), ("moe", "dflash")])
def test_drafters_have_the_rows_of_the_prompt_too(
    micro_artifacts: dict[str, Path], kind: str, spec: str
) -> None:
    """Without them an answer would be right, and its drafts bad."""
    engine = load(micro_artifacts[kind], spec=spec, prefix_cache_mib=0)
    made = engine.submit_many(ask(engine, TEXT), OPTIONS, 3)
    leader, *heirs = (sequence for sequence, _ in made)
    while not all(sequence.decodes for sequence in (leader, *heirs)):
        engine.step()
    full, rest = divmod(leader.prompt_length, 64)
    assert full and rest
    speculation = engine._runtime.speculation
    assert speculation is not None and speculation.kv_layers
    for layer in speculation.kv_layers.values():
        for words in (layer.keys, layer.values):
            expected = words[leader.pages[full], :rest]
            assert expected.abs().sum() > 0
            for heir in heirs:
                assert heir.pages[full] != leader.pages[full]
                assert words[heir.pages[full], :rest].equal(expected)


@pytest.mark.parametrize("closed", [0, 2])
@pytest.mark.parametrize("read", [0, 1])
def test_closing_one_leaves_the_others(
    micro_artifacts: dict[str, Path], closed: int, read: int
) -> None:
    engine = load(micro_artifacts["dense"], prefix_cache_mib=0)
    expected = singles(engine, 4, OPTIONS)
    generations = engine.generate_many(ask(engine, TEXT), OPTIONS, 4)
    for _ in range(read):
        next(generations[closed])
    generations[closed].close()
    for index, generation in enumerate(generations):
        events = list(generation)
        if index == closed:
            assert not events
        else:
            assert isinstance(events[-1], GenerationResult)
            assert outcome(events[-1]) == expected[index]
    engine.check()
    assert not engine.has_work


def test_a_count_below_one_is_refused(micro_artifacts: dict[str, Path]) -> None:
    """I7: no answer that never ends."""
    engine = load(micro_artifacts["dense"])
    for count in (0, -1):
        with pytest.raises(UsageError, match=f"{count} generations: must be 1 or more"):
            engine.generate_many(ask(engine, TEXT), OPTIONS, count)


def test_asynchronous_events_carry_the_number(micro_artifacts: dict[str, Path]) -> None:
    engine = load(micro_artifacts["dense"], prefix_cache_mib=0)
    options = replace(OPTIONS, stop=("b",))
    expected = singles(engine, 4, options)
    prompt = ask(engine, TEXT)

    async def collect() -> tuple[dict[int, GenerationResult], dict[int, int]]:
        served = AsyncEngine(engine)
        results: dict[int, GenerationResult] = {}
        pieces: dict[int, int] = {}
        try:
            async for index, event in served.generate_many(prompt, options, 4):
                assert index not in results
                if isinstance(event, TextDelta):
                    pieces[index] = pieces.get(index, 0) + 1
                else:
                    results[index] = event
        finally:
            await served.close()
        return results, pieces

    results, pieces = asyncio.run(asyncio.wait_for(collect(), timeout=120))
    assert [outcome(results[index]) for index in range(4)] == expected
    assert set(pieces) == {0, 1, 2, 3}
    engine.check()
    assert not engine.has_work


def test_leaving_early_frees_them_all(micro_artifacts: dict[str, Path]) -> None:
    engine = load(micro_artifacts["dense"], prefix_cache_mib=0)
    prompt = ask(engine, TEXT)

    async def leave() -> None:
        served = AsyncEngine(engine)
        try:
            events = served.generate_many(prompt, replace(OPTIONS, max_new=200), 5)
            async for _ in events:
                break
            await events.aclose()
            while engine.has_work:
                await asyncio.sleep(0.01)
        finally:
            await served.close()

    asyncio.run(asyncio.wait_for(leave(), timeout=120))
    engine.check()
