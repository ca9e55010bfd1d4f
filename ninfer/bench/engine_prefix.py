"""What a tool conversation computes again each turn, and what reusing decoded tokens changes."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Final

from ninfer.bench.engine_cpu import LIKE
from ninfer.bench.report import Row
from ninfer.convert import synthesise
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.errors import GenerationError
from ninfer.request import GenerationResult, PreparedPrompt

TURNS: Final = 20
# Tokens of a tool's result and of the model's next call; a first prompt with the tools in it.
_NEW: Final = (10, 120)
_ANSWER: Final = (30, 120)
_FIRST: Final = 400
_IDS: Final = 500


Shape = dict[str, int | str]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the conversation and what it took: `new` tokens follow `answer` ones."""

    prompt: int
    answer: int
    new: int
    cached: int
    ids: tuple[int, ...]

    @property
    def computed(self) -> int:
        """Prompt tokens that were not reused."""
        return self.prompt - self.cached

    @property
    def bound(self) -> int:
        """The most that an exact cache may compute: answer, new turn, and less than a page."""
        return self.answer + self.new + 63


def converse(engine: Engine, seed: int) -> tuple[list[PreparedPrompt], list[Turn]]:
    """A conversation that goes on with what this engine answers: its prompts, and what they took.

    The length of an answer is drawn as the new turns are, so that equal answers make equal prompts.
    """
    draw, answer = random.Random(seed), 0
    prompt: tuple[int, ...] = ()
    prompts: list[PreparedPrompt] = []
    turns: list[Turn] = []
    for number in range(TURNS):
        new = _FIRST if not number else draw.randint(*_NEW)
        prompt += tuple(draw.randrange(_IDS) for _ in range(new))
        prompts.append(PreparedPrompt("", prompt, False))
        turns.append(_ask(engine, prompts[-1], number, answer, new))
        prompt, answer = prompt + turns[-1].ids, len(turns[-1].ids)
    return prompts, turns


def repeat(engine: Engine, prompts: Sequence[PreparedPrompt], like: Sequence[Turn]) -> list[Turn]:
    """The prompts of another engine's conversation, whatever this one answers."""
    return [
        _ask(engine, prompt, number, turn.answer, turn.new)
        for number, (prompt, turn) in enumerate(zip(prompts, like, strict=True))
    ]


def _ask(engine: Engine, prompt: PreparedPrompt, number: int, answer: int, new: int) -> Turn:
    length = random.Random(number).randint(*_ANSWER)
    options = GenerationOptions(max_new=length, temperature=1.0, seed=number, raw_output=True)
    *_, last = engine.generate(prompt, options)
    assert isinstance(last, GenerationResult)
    return Turn(len(prompt.token_ids), answer, new, last.usage.cached_tokens, last.token_ids)


def check(cold: Sequence[Turn], warm: Sequence[Turn]) -> None:
    """Raise GenerationError unless reuse left every token alone and kept to its bound."""
    if [turn.ids for turn in cold] != [turn.ids for turn in warm]:
        raise GenerationError("prefix reuse changes the tokens; nothing was counted")
    late = [turn for turn in warm[1:] if turn.computed > turn.bound]
    if late or any(turn.cached for turn in cold):
        raise GenerationError(f"more than its bound was computed: {late}; nothing was counted")


def unlike(cold: Sequence[Turn], warm: Sequence[Turn]) -> tuple[int, int]:
    """Answers that differ, and ids from the first place on where they do."""
    answers = ids = 0
    for one, other in zip(cold, warm, strict=True):
        same = takewhile(lambda pair: pair[0] == pair[1], zip(one.ids, other.ids, strict=False))
        rest = len(one.ids) - sum(1 for _ in same)
        answers += rest > 0
        ids += rest
    return answers, ids


def run(*, scale: str = "micro", activations: Sequence[str] = ("fp32", "bf16")) -> list[Row]:
    """Check, then count, with activations of both kinds; nothing is timed."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.ninfer"
        synthesise(path, like=LIKE, scale=scale)
        for kind in activations:
            base = EngineOptions(path, max_context=8192, device="cpu", activations=kind)

            def engine(base: EngineOptions = base, **changes: int) -> Engine:
                return Engine.load(replace(base, **changes))  # type: ignore[arg-type]  # by name

            prompts, warm = converse(engine(), seed=1)
            cold = repeat(engine(prefix_cache_mib=0), prompts, warm)
            check(cold, warm)
            _, free = converse(engine(reuse_decoded=True), seed=1)
            shape: Shape = {"like": LIKE, "scale": scale, "activations": kind, "turns": TURNS}
            rows += _token_rows(shape, warm, free)
            loose = repeat(engine(reuse_decoded=True), prompts, warm)
            rows += _unlike_rows(shape, cold, loose)
    return rows


def _token_rows(shape: Shape, warm: list[Turn], free: list[Turn]) -> list[Row]:
    computed = [turn.computed for turn in warm[1:]]
    return [
        _tokens("computed a turn", shape, warm, "whole prompt", [t.prompt for t in warm[1:]]),
        _tokens("computed, exact reuse", shape, warm, "its bound", [t.bound for t in warm[1:]]),
        _tokens("computed, decoded reused", shape, free, "exact reuse", computed),
    ]


def _unlike_rows(shape: Shape, cold: list[Turn], loose: list[Turn]) -> list[Row]:
    answers, ids = unlike(cold, loose)
    return [
        _count("unlike, decoded reused", shape, "answers", answers, len(cold)),
        _count("unlike, decoded reused", shape, "ids", ids, sum(len(turn.ids) for turn in cold)),
    ]


def _tokens(
    name: str, shape: Shape, turns: list[Turn], reference_name: str, reference: list[int]
) -> Row:
    figures = [turn.computed for turn in turns[1:]]
    return Row(
        name=name,
        shape=shape,
        unit="tokens",
        value=median(figures),
        low=min(figures),
        high=max(figures),
        repeats=len(figures),
        reference_name=reference_name,
        reference=median(reference),
    )


def _count(name: str, shape: Shape, unit: str, found: int, of: int) -> Row:
    return Row(name, shape, unit, found, found, found, 1, "in all", of)
