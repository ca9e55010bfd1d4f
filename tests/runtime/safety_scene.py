"""Small random models with every kind of speculation, pictures, prefixes and a clock."""

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from spec_scene import Model

from ninfer.engine.options import EngineOptions
from ninfer.engine.speculation import bind_drafter, build_speculation
from ninfer.models.qwen3_6 import bind_vision
from ninfer.request import Media, MediaRun, SamplingParams
from ninfer.runtime import Runtime, Sequence, SequenceRequest, Status
from ninfer.runtime.prefix_reuse import PrefixOptions
from ninfer.runtime.speculative import Speculation

KINDS = (None, "lookup", "mtp", "dflash", "dflash2")
LIKE, MOE = "qwen3.6-27b", "qwen3.6-35b-a3b"
# An image of 8 x 8 patches is 16 tokens.
GRID, TOKENS = (1, 8, 8), 16


@dataclass
class Clock:
    """A time that only the test moves."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Scene:
    """A model with its tower and drafter, from which runtimes are made."""

    kind: str | None = None
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        # The one published artifact with DFlash is the mixture of experts.
        like = MOE if self.kind == "dflash" else LIKE
        self.model = Model(like, self.kind if self.kind == "dflash2" else None)
        config, recipe = self.model.config, self.model.recipe
        self.vision = bind_vision(self.model.source, config, recipe)
        self.options = EngineOptions(
            Path("none"), spec=self.kind, draft_tokens=3 * bool(self.kind) or None
        )
        self.drafter = bind_drafter(self.options, self.model.source, config, recipe)

    def runtime(
        self,
        *,
        prefix_bytes: int = 1 << 20,
        speculation: Speculation | None = None,
        **changes: object,
    ) -> Runtime:
        """A runtime of three places and few pages, so that all states come up."""
        base = replace(
            self.model.runtime,
            max_context=512,
            pages=14,
            state_slots=3,
            prefill_chunk=128,
            max_pending=8,
            window=4 if self.kind else 1,
        )
        sizes = replace(base, **changes)
        model = self.model
        if speculation is None:
            parts = (model.config, sizes, model.text, self.drafter)
            speculation = build_speculation(self.options, *parts)
        return Runtime(
            model.text,
            model.config,
            sizes,
            self.vision,
            speculation=speculation,
            prefix=PrefixOptions(prefix_bytes, b"test") if prefix_bytes else None,
            clock=self.clock,
        )


def picture(seed: int, row: int) -> Media:
    """An image of random pixels; `row` is the width of a patch row."""
    patches = np.random.default_rng(seed).integers(0, 256, (64, row)).astype(np.uint8)
    return Media("image", GRID, patches, digest=seed.to_bytes(8, "little"))


def with_pictures(
    scene: Scene, tokens: list[int], seeds: list[int], **fields: object
) -> SequenceRequest:
    """A prompt whose first tokens stand for these pictures, one behind the other."""
    assert scene.model.config.vision is not None
    row = scene.model.config.vision.patch_row
    ids = [5] * (TOKENS * len(seeds)) + tokens
    runs = [MediaRun(index * TOKENS, (1, 4, 4), index, 0) for index in range(len(seeds))]
    return request(
        ids, media=tuple(picture(seed, row) for seed in seeds), runs=tuple(runs), **fields
    )


def request(tokens: list[int], **fields: object) -> SequenceRequest:
    """A greedy request of 8 tokens unless told otherwise."""
    base: dict[str, object] = {"sampling": SamplingParams(), "max_tokens": 8}
    return SequenceRequest(tuple(tokens), **{**base, **fields})


def words(draw: random.Random, length: int) -> list[int]:
    """Ids that often repeat, so that lookup has something to find."""
    few = [draw.randrange(500) for _ in range(6)]
    return [draw.choice(few) if draw.random() < 0.7 else draw.randrange(500) for _ in range(length)]


def state_of(sequence: Sequence) -> str:
    """The name of the state that an unfinished sequence is in."""
    if sequence.status is Status.WAITING:
        return "preempted" if sequence.preemptions else "waiting"
    if not sequence.is_encoded:
        return "encoding"
    return "decoding" if sequence.decodes else "prefilling"
