"""Cases of equal tokens over one artifact of any size: what may not change them, as functions.

`CHECKS` holds the checks that need fixed settings, `random_case` draws settings at random. Each
compares with the same requests run alone, without drafts, without a prefix cache and in one chunk.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.frontend import parse_conversation
from ninfer.request import GenerationResult, PreparedPrompt

MODES: Final = (
    GenerationOptions(greedy=True),
    GenerationOptions(temperature=1.0, presence_penalty=0.0),
    GenerationOptions(
        temperature=0.9,
        top_p=0.9,
        presence_penalty=1.0,
        frequency_penalty=0.3,
        repetition_penalty=1.2,
    ),
)
# Lookup finds drafts in texts like these.
_HEADS: Final = ("one two three four five six seven eight nine ten " * 3, "A page is held. " * 9)
_PAGE: Final = 64


@dataclass(frozen=True, slots=True)
class Scene:
    """An artifact, the drafters in it, and how long its sequences are."""

    path: Path
    drafters: tuple[str, ...]
    max_context: int = 512
    max_new: int = 12

    def engine(self, **changes: Any) -> Engine:
        """An engine without drafts, prefix cache and company unless asked for."""
        options = EngineOptions(
            artifact=self.path,
            max_context=self.max_context,
            device="cpu",
            prefix_cache_mib=0,
            max_concurrency=1,
            max_pending_requests=200,
        )
        return Engine.load(replace(options, **changes))


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: a text and how to answer it."""

    text: str
    options: GenerationOptions

    def prepare(self, engine: Engine) -> PreparedPrompt:
        """Its prompt, thinking left out."""
        return engine.prepare(parse_conversation([{"role": "user", "content": self.text}]))


def asks(scene: Scene, draw: random.Random, count: int) -> list[Ask]:
    """Requests of which many share a beginning."""
    return [
        Ask(
            draw.choice(("", *_HEADS)) + "".join(draw.choices("abcdef ", k=draw.randint(1, 40))),
            replace(draw.choice(MODES), seed=draw.randrange(2**32), max_new=scene.max_new),
        )
        for _ in range(count)
    ]


def together(engine: Engine, requests: list[Ask]) -> list[tuple[int, ...]]:
    """Token ids of requests that are under way at the same time."""
    runs = [engine.generate(one.prepare(engine), one.options) for one in requests]
    return [_ids(list(run)[-1]) for run in runs]


def alone(engine: Engine, requests: list[Ask]) -> list[tuple[int, ...]]:
    """Token ids of the same requests, one after the other."""
    return [_ids(list(engine.generate(r.prepare(engine), r.options))[-1]) for r in requests]


def _ids(last: object) -> tuple[int, ...]:
    assert isinstance(last, GenerationResult)
    return last.token_ids


def compare(scene: Scene, requests: list[Ask], times: int = 1, **changes: Any) -> Engine:
    """Fail unless an engine with these options gives, so many times, what a plain one gives."""
    expected = alone(scene.engine(), requests)
    engine = scene.engine(**changes)
    for turn in range(times):
        found = together(engine, requests)
        assert found == expected, f"{changes}, turn {turn}"
        engine.check()
    return engine


def company(scene: Scene, count: int) -> None:
    """Batches: the same tokens beside any number of others."""
    compare(scene, asks(scene, random.Random(count), count), max_concurrency=count)


def drafts(scene: Scene, spec: str, length: int) -> None:
    """Speculation on and off."""
    changes = {"spec": spec, "draft_tokens": length, "adaptive_drafts": False}
    engine = compare(scene, asks(scene, random.Random(length), 4), max_concurrency=4, **changes)
    counters = engine.speculation_counters()
    assert counters is not None and (spec == "lookup" or counters.drafted)


def chunks(scene: Scene, size: int) -> None:
    """Prompts cut into pieces."""
    compare(scene, asks(scene, random.Random(size), 4), prefill_chunk=size, max_concurrency=2)


def prefixes(scene: Scene, mib: int) -> None:
    """Cold, warm, and after others have pushed entries out."""
    requests = asks(scene, random.Random(mib), 6)
    engine = compare(scene, requests, times=2, prefix_cache_mib=mib, max_concurrency=2)
    stats = engine.prefix_stats()
    assert stats is not None and stats.hits


def pressure(scene: Scene) -> None:
    """So few pages that sequences give way to each other."""
    pages = -(-scene.max_context // _PAGE)
    requests = asks(scene, random.Random(9), 6)
    compare(scene, requests, max_concurrency=6, kv_capacity=pages * _PAGE)


def checks(scene: Scene) -> Iterator[tuple[str, Callable[[], None]]]:
    """Name and body of a dozen checks for this artifact."""
    for count in (2, 8):
        yield f"company of {count}", partial(company, scene, count)
    for size in (128, 1024):
        yield f"chunks of {size}", partial(chunks, scene, size)
    yield "warm prefixes", partial(prefixes, scene, 64)
    yield "few pages", partial(pressure, scene)
    for spec, length in (("mtp", 1), ("mtp", 3), ("mtp", 5), ("dflash", 7), ("dflash", 15)):
        if spec in scene.drafters:
            yield f"{spec} {length}", partial(drafts, scene, spec, length)
    yield "lookup 8", partial(drafts, scene, "lookup", 8)


def random_case(scene: Scene, seed: int) -> int:
    """Requests and options drawn at random; how many answers were compared."""
    draw = random.Random(seed)
    spec = draw.choice((None, "lookup", *scene.drafters))
    count = draw.choice((1, 2, 3, 5, 8))
    full = -(-scene.max_context // _PAGE) * _PAGE
    changes: dict[str, Any] = {
        "max_concurrency": draw.choice((1, 2, 4, 8)),
        "prefill_chunk": draw.choice((128, 256, 1024)),
        "prefix_cache_mib": draw.choice((0, 1, 64)),
        "kv_capacity": draw.choice((None, full)),
    }
    if spec is not None:
        most = 5 if spec == "mtp" else 15
        changes |= {
            "spec": spec,
            "draft_tokens": draw.randint(1, most),
            "adaptive_drafts": draw.random() < 0.3,
        }
    times = 2 if changes["prefix_cache_mib"] else 1
    compare(scene, asks(scene, draw, count), times=times, **changes)
    return count * times
