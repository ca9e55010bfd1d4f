"""The vision tasks: questions about drawn pictures and clips, as samples.

Answers are short and have one right form. Pictures have sides from 128 to 224; clips have four
frames of 128 x 128, two before the change and two after it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from recipes.tiny.sample import Sample, Task
from recipes.tiny.scene_images import IMAGE_CASES
from recipes.tiny.scene_media import clip_times, data_uri
from recipes.tiny.scene_shapes import draw
from recipes.tiny.scene_videos import VIDEO_CASES
from recipes.tiny.scene_words import Case

__all__ = ["CASES", "VISION_TASKS", "data_uri", "sample_of"]

CASES: Final[Mapping[str, Callable[[Random], Case]]] = {**IMAGE_CASES, **VIDEO_CASES}

# Frames a second; the engine looks at all four frames of a clip at each of these.
_FPS: Final = (1.0, 2.0, 2.0, 4.0)


def sample_of(task: str, case: Case, rng: Random) -> Sample:
    """The sample of a case: its scenes drawn, the media before the question or behind it."""
    video = task in VIDEO_CASES
    media: list[NDArray[np.uint8]] = []
    times: list[tuple[float, ...]] = []
    for scenes in case.views:
        frames = np.stack([draw(scene) for scene in scenes])
        media.append(frames.repeat(2, axis=0) if video else frames)
        times.append(clip_times(len(media[-1]), rng.choice(_FPS)) if video else ())
    parts: list[dict[str, Any]] = [{"type": "video" if video else "image"} for _ in media]
    text = {"type": "text", "text": case.question}
    content = [text, *parts] if rng.random() < 0.2 else [*parts, text]
    messages = (
        {"role": "user", "content": content},
        {"role": "assistant", "content": case.answer},
    )
    return Sample(
        task, messages, media=tuple(media), timestamps=tuple(times), grade=dict(case.grade)
    )


def _task(name: str, rng: Random) -> Sample:
    return sample_of(name, CASES[name](rng), rng)


VISION_TASKS: Final[Mapping[str, Task]] = {name: partial(_task, name) for name in CASES}
