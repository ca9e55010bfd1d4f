"""Failed admissions of the engine: each has its own error, and takes nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.errors import (
    CapacityError,
    ConstraintError,
    ContextError,
    NInferError,
    PromptError,
    UsageError,
)
from ninfer.frontend import parse_conversation
from ninfer.request import GenerationResult, PreparedPrompt

GREEDY = GenerationOptions(greedy=True, max_new=6)
Attempt = tuple[type[NInferError], Callable[[], object]]


@pytest.fixture(scope="module")
def engine(micro_artifacts: dict[str, Path]) -> Engine:
    return Engine.load(
        EngineOptions(
            micro_artifacts["dense"],
            max_context=256,
            device="cpu",
            vision=True,
            max_pending_requests=1,
        )
    )


def ask(engine: Engine, text: str) -> PreparedPrompt:
    return engine.prepare(parse_conversation([{"role": "user", "content": text}]))


def attempts(engine: Engine, folder: Path) -> list[Attempt]:
    """Requests that cannot be admitted, while one runs and one waits."""
    schema = folder / "schema.json"
    schema.write_text('{"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}')
    bad_schema = replace(GREEDY, json_schema=schema)
    source = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    broken = parse_conversation([{"role": "user", "content": [source]}])
    short = ask(engine, "hi")
    blind = replace(short, media=(), runs=())
    return [
        (ContextError, lambda: engine.submit(ask(engine, "word " * 400), GREEDY)),
        (ConstraintError, lambda: engine.submit(short, bad_schema)),
        (PromptError, lambda: engine.prepare(broken)),
        (PromptError, lambda: engine.submit(replace(blind, token_ids=()), GREEDY)),
        (PromptError, lambda: engine.submit(replace(blind, token_ids=(1, 10**6)), GREEDY)),
        (UsageError, lambda: engine.submit(short, replace(GREEDY, stop_token_id=(10**6,)))),
        (CapacityError, lambda: engine.submit(short, GREEDY)),
    ]


def refuse(engine: Engine, folder: Path, rounds: int) -> int:
    """Every attempt so many times; how many there were."""
    alone = list(engine.generate(ask(engine, "hello"), GREEDY))
    running = engine.generate(ask(engine, "hello"), GREEDY)
    waiting = engine.submit(ask(engine, "later"), GREEDY)[0]
    events = [next(running)]
    pools = (engine._runtime.pages, engine._runtime.slots)
    before = [pool.free_count for pool in pools]
    tried = attempts(engine, folder)
    for _ in range(rounds):
        for kind, attempt in tried:
            with pytest.raises(kind):
                attempt()
            assert [pool.free_count for pool in pools] == before
        engine.check()
    engine.cancel(waiting)
    events += running
    assert isinstance(events[-1], GenerationResult) and isinstance(alone[-1], GenerationResult)
    assert events[-1].token_ids == alone[-1].token_ids
    assert not engine.has_work
    return rounds * len(tried)


def test_d10_failed_admissions_take_nothing(engine: Engine, tmp_path: Path) -> None:
    """D10: too long, a bad constraint, bad media, no place: free counts are what they were."""
    assert refuse(engine, tmp_path, 15) >= 100


@pytest.mark.soak
def test_d10_failed_admissions_take_nothing_in_full(
    engine: Engine, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("count", refuse(engine, tmp_path, 150))
    record_property("unit", "failed admissions beside a running request")
