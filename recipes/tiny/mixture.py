"""How often each task is drawn in training."""

from collections.abc import Mapping
from typing import Final

from recipes.tiny.sample import Task
from recipes.tiny.scenes import VISION_TASKS
from recipes.tiny.tasks import TEXT_TASKS


def task_makers() -> Mapping[str, Task]:
    """All tasks by name."""
    return {**TEXT_TASKS, **VISION_TASKS}


# Shares of samples; tokens are another matter, since needles are long.
_TEXT: Final = {
    "arithmetic": 20.0,
    "arithmetic_direct": 3.0,
    "copy": 6.0,
    "needle": 4.5,
    "lists": 10.0,
    "jsonl": 4.0,
    "csv": 4.0,
    "sql": 3.0,
    "json_object": 3.0,
    "stories": 6.0,
    "translation_en_de": 5.0,
    "translation_de_en": 5.0,
    "tools": 10.0,
    "tools_result": 4.0,
    "languages": 4.0,
    "chat": 3.0,
}
# Pictures are cheap in tokens, and describing one teaches the most about it.
_VISION: Final = {
    "image_count": 9.0,
    "image_colour": 7.0,
    "image_position": 10.0,
    "image_describe": 14.0,
    "video_change": 6.0,
    "two_images": 4.0,
}
MIXTURES: Final[Mapping[str, Mapping[str, float]]] = {
    "tiny": {**_TEXT, **_VISION},
    "tiny-moe": _TEXT,
}
