"""The text tasks by name."""

from collections.abc import Mapping
from typing import Final

from recipes.tiny.sample import Task

TEXT_TASKS: Final[Mapping[str, Task]] = {}
