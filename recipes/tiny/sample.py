"""What a task gives: one conversation whose last message is the wanted answer."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation to learn from or to be asked.

    `messages` are OpenAI-style chat messages. The last one has the role "assistant" and is the
    target: `content`, perhaps `reasoning_content`, perhaps `tool_calls` with arguments as objects.
    With `thinking` every assistant message after the last real user message has its
    `reasoning_content`; without, none has. `media` are uint8 [frames, height, width, 3] in the
    order of the image and video parts of the messages, one frame for an image; `timestamps` has
    for each of them the seconds of a video's temporal pairs, () for an image. It may be left empty
    when there are no videos. `grade` says how an answer is graded: `kind` and its parameters,
    JSON-able (see `ninfer.evals`).
    """

    task: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    thinking: bool = False
    media: tuple[NDArray[np.uint8], ...] = ()
    timestamps: tuple[tuple[float, ...], ...] = ()
    grade: Mapping[str, Any] = field(default_factory=dict)


# All randomness comes from the argument: the same state of it, the same sample.
Task = Callable[[random.Random], Sample]
