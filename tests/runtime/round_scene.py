"""Runtimes with device-side rounds beside plain ones, and drafters that foresee some tokens."""

import random
from dataclasses import dataclass, field, replace
from typing import Final

import torch
from safety_scene import Scene, request, words
from torch import Tensor

from ninfer.request import SamplingParams
from ninfer.runtime import RoundOptions, Runtime, Sequence, SequenceRequest
from ninfer.runtime.rounds import DecodeRounds, RoundSources
from ninfer.runtime.speculative import Speculation

GREEDY: Final = SamplingParams()
SAMPLED: Final = SamplingParams(temperature=1.0, top_k=20, top_p=0.95)
PENALISED: Final = SamplingParams(
    temperature=0.9,
    top_p=0.9,
    min_p=0.01,
    presence_penalty=1.0,
    frequency_penalty=0.3,
    repetition_penalty=1.2,
)
MODES: Final = (GREEDY, SAMPLED, PENALISED)


def requests(seed: int, count: int, most: int = 30, **fields: object) -> list[SequenceRequest]:
    """Prompts of all lengths with all kinds of sampling."""
    draw = random.Random(seed)
    return [
        request(
            words(draw, draw.randint(3, 150)),
            sampling=replace(draw.choice(MODES), seed=draw.randrange(2**64)),
            max_tokens=draw.randint(1, most),
            **fields,
        )
        for _ in range(count)
    ]


def tokens_of(runtime: Runtime, asked: list[SequenceRequest]) -> list[tuple[int, ...]]:
    """What every request gives when all are there at once."""
    sequences = [runtime.submit(one) for one in asked]
    found: dict[Sequence, tuple[int, ...]] = dict.fromkeys(sequences, ())
    while runtime.has_work:
        for progress in runtime.step():
            assert progress.error is None, progress.error
            found[progress.sequence] += progress.tokens
    runtime.check()
    return list(found.values())


def rounds_of(runtime: Runtime) -> DecodeRounds:
    assert runtime.rounds is not None
    return runtime.rounds


class Silent:
    """A proposer that drafts nothing where the host asks."""

    taps: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.kv_layers: dict[str, object] = {}

    def observe(self, *rest: object) -> None: ...

    def propose(self, sequences: list[Sequence], counts: list[int]) -> list[list[int]]:
        return [[] for _ in sequences]

    def source(self, sequence: Sequence) -> str:
        return "none"

    def release(self, sequence: Sequence) -> None: ...


@dataclass
class Oracle:
    """A drafter on the device that knows what a plain run has given.

    Each draft is right at the given rate. What it is asked for and told is taken down.
    """

    truth: dict[tuple[int, ...], tuple[int, ...]]  # prompt to answer
    rate: float
    source: str = "oracle"
    most_behind: int = 0
    taps: tuple[int, ...] = ()
    counts: list[int] = field(default_factory=list)
    left: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._seats: dict[int, Sequence] = {}
        self._random = random.Random(7)

    def propose(self, lanes: object, layout: object) -> Tensor:
        rows = [
            self._drafts(slot, frontier, layout.shape.width - 1)
            for slot, frontier in zip(lanes.slots.tolist(), lanes.frontiers.tolist(), strict=True)
        ]
        return torch.tensor(rows)

    def _drafts(self, slot: int, frontier: int, count: int) -> list[int]:
        sequence = self._seats[slot]
        prompt = tuple(sequence.tokens[: sequence.prompt_length])
        ahead = self.truth[prompt][frontier + 1 - len(prompt) :][:count]
        ahead += (-1,) * (count - len(ahead))
        return [t if self._random.random() < self.rate else (t + 1) % 500 for t in ahead]

    def observe(self, lanes: object, layout: object, verified: object) -> None:
        self.counts += verified.counts.tolist()

    def knows(self, sequence: Sequence) -> bool:
        return True

    def join(self, sequences: list[Sequence]) -> None:
        self._seats |= {s.state_slot: s for s in sequences}

    def leave(self, sequences: list[Sequence]) -> None:
        self.left.append(tuple(s.cached for s in sequences))


def foreseeing(
    scene: Scene, asked: list[SequenceRequest], rate: float, *, ahead: int, **changes: object
) -> tuple[Runtime, Oracle]:
    """A runtime whose rounds have an oracle's drafts; four rows a window."""
    plain = tokens_of(scene.runtime(), asked)
    truth = {one.prompt: tokens for one, tokens in zip(asked, plain, strict=True)}
    oracle = Oracle(truth, rate)
    sizes = {"window": 4, "rounds": RoundOptions(ahead), **changes}
    runtime = scene.runtime(speculation=Speculation(Silent()), **sizes)
    rounds = rounds_of(runtime)
    rounds.model = replace(rounds.model, drafter=oracle)
    rounds._sources = RoundSources(oracle)
    return runtime, oracle
