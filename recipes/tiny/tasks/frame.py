"""How a task makes its sample: system message, question, thought, answer, grade."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from recipes.tiny.sample import Sample

T = TypeVar("T")

SYSTEM_TEXTS: Final = (
    "You are a helpful assistant.",
    "You are tiny, a small demo model of ninfer.",
    "You are a careful assistant. Follow the instructions exactly.",
    "Answer briefly.",
    "Be concise.",
    "You are a friendly assistant.",
    "Give short and correct answers.",
    "Do what the user asks and nothing else.",
)


def system(rng: random.Random, share: float = 0.25) -> tuple[dict[str, Any], ...]:
    """A system message in `share` of the cases, else none."""
    if rng.random() >= share:
        return ()
    return ({"role": "system", "content": rng.choice(SYSTEM_TEXTS)},)


def answered(
    rng: random.Random,
    task: str,
    question: str,
    answer: str,
    grade: Mapping[str, Any],
    thought: str = "",
) -> Sample:
    """A sample of one question and its answer; thinking is on when there is a thought."""
    messages = (*system(rng), {"role": "user", "content": question}, turn(answer, thought))
    return Sample(task, messages, thinking=bool(thought), grade=grade)


def turn(answer: str, thought: str = "", calls: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """An assistant message; `calls` are {"name", "arguments"}."""
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [
            {"type": "function", "id": f"call_{place}", "function": dict(call)}
            for place, call in enumerate(calls)
        ]
    return message


def maybe(rng: random.Random, share: float, thought: str) -> str:
    """The thought in `share` of the cases, else none."""
    return thought if rng.random() < share else ""


def some(rng: random.Random, items: Sequence[T], low: int, high: int) -> list[T]:
    """Between `low` and `high` different items."""
    return rng.sample(items, min(rng.randint(low, high), len(items)))
