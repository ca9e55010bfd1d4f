"""Prefill in chunks of 1,024 and of 8,192: the same ids, cold and warm; some here, all in soak."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.engine.program import ProgramOptions
from ninfer.request import GenerationResult, PreparedPrompt

SIZES: Final = (1024, 8192)
# Lengths at which a chunk, a page or a chunk of the delta rule ends, and those beside them.
_BORDERS: Final = (1024, 2048, 4096, 8192)
_MODES: Final = (
    GenerationOptions(greedy=True),
    GenerationOptions(temperature=1.0, presence_penalty=0.0),
)
_IDS: Final = 500


def length_of(draw: random.Random, longest: int) -> int:
    """A length, often one beside a border."""
    # Few of the longest: on a processor one takes as long as all others.
    most = longest if draw.random() < 0.04 else 2200
    near = [border + by for border in _BORDERS for by in (-1, 0, 1) if border < min(most, longest)]
    return draw.choice([*near, draw.randint(1, min(most, longest))])


def prompts(seed: int, count: int, longest: int) -> list[tuple[tuple[int, ...], GenerationOptions]]:
    """Prompts of which every third goes on from an earlier one, so that warm is more than equal."""
    draw, found = random.Random(seed), []
    for number in range(count):
        length = length_of(draw, longest)
        head = found[draw.randrange(number)][0] if number % 3 == 2 else ()
        cut = draw.randint(0, len(head))
        ids = (*head[:cut], *(draw.randrange(_IDS) for _ in range(length)))[:longest]
        options = replace(draw.choice(_MODES), seed=number, max_new=draw.randint(2, 4))
        found.append((ids, options))
    return found


def engine_of(path: Path, chunk: int, prefix_cache_mib: int = 64) -> Engine:
    return Engine.load(
        EngineOptions(
            artifact=path,
            device="cpu",
            max_context=9216,
            max_concurrency=2,
            prefill_chunk=chunk,
            prefix_cache_mib=prefix_cache_mib,
        )
    )


def prompt_of(length: int) -> PreparedPrompt:
    ids = tuple(number * 7 % _IDS for number in range(length))
    return PreparedPrompt("", ids, starts_in_reasoning=False)


def ids_of(engine: Engine, ids: tuple[int, ...], options: GenerationOptions) -> tuple[int, ...]:
    *_, last = engine.generate(PreparedPrompt("", ids, starts_in_reasoning=False), options)
    assert isinstance(last, GenerationResult)
    return last.token_ids


def compare(path: Path, seed: int, count: int, longest: int) -> int:
    """Fail unless both sizes give the same ids, cold and warm; how many warm ones were reused."""
    asked = prompts(seed, count, longest)
    assert any(len(ids) > SIZES[0] for ids, _ in asked)
    engines = [engine_of(path, size) for size in SIZES]
    cold = [[ids_of(engine, *one) for one in asked] for engine in engines]
    warm = [[ids_of(engine, *one) for one in asked] for engine in engines]
    for number, rows in enumerate(zip(*cold, *warm, strict=True)):
        assert len(set(rows)) == 1, (number, len(asked[number][0]), rows)
    stats = [engine.prefix_stats() for engine in engines]
    assert all(one is not None and one.hits for one in stats)
    return sum(one.hits for one in stats if one is not None)


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_large_chunks_give_the_same_ids(micro_artifacts: dict[str, Path], kind: str) -> None:
    compare(micro_artifacts[kind], 1, 3, 1300)


def test_a_chunk_of_8192_is_one_pass(micro_artifacts: dict[str, Path]) -> None:
    """Or the sizes would be compared with themselves."""
    steps = []
    for size in SIZES:
        engine = engine_of(micro_artifacts["dense"], size, 0)
        prompt = prompt_of(3000)
        engine.submit(prompt, GenerationOptions(max_new=1))
        steps.append(0)
        while engine.has_work:
            engine.step()
            steps[-1] += 1
    assert steps == [3, 1]


@pytest.mark.parametrize("spec", [None, "mtp"])
@pytest.mark.parametrize("chunk", [128, 512])
def test_a_long_prompt_stalls_nobody_for_more_than_one_chunk(
    micro_artifacts: dict[str, Path], chunk: int, spec: str | None
) -> None:
    """Counted in steps: each has one chunk at most, and a token for everyone who decodes."""
    engine = Engine.load(
        EngineOptions(
            artifact=micro_artifacts["dense"],
            device="cpu",
            max_context=4096,
            max_concurrency=4,
            prefill_chunk=chunk,
            prefix_cache_mib=0,
            spec=spec,
        )
    )
    writing = GenerationOptions(max_new=400, greedy=True, program=ProgramOptions(ignore_stops=True))
    running = [engine.submit(prompt_of(5 + number), writing)[0] for number in range(3)]
    while not all(sequence.generated for sequence in running):
        engine.step()
    for _ in range(3):
        engine.step()
    long, _ = engine.submit(prompt_of(3000), GenerationOptions(max_new=2))
    steps = 0
    while not long.generated:
        before = long.cached
        tokens = {progress.sequence: len(progress.tokens) for progress in engine.step()}
        assert all(tokens.get(sequence, 0) >= 1 for sequence in running), (steps, tokens)
        assert 0 < long.cached - before <= chunk or long.generated
        steps += 1
    # Not one step more than the prompt has chunks: nor is it the one that is held back.
    assert steps == -(-3000 // chunk)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["dense", "moe"])
@pytest.mark.parametrize("part", range(40))
def test_two_hundred_prompts_in_large_chunks(
    micro_artifacts: dict[str, Path],
    record_property: Callable[[str, object], None],
    kind: str,
    part: int,
) -> None:
    compare(micro_artifacts[kind], 100 + part, 5, 9000)
    record_property("count", 5)
    record_property("unit", "prompts with equal ids in chunks of 1,024 and 8,192, cold and warm")
