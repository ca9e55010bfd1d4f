"""The text tasks by name."""

from collections.abc import Mapping
from typing import Final

from recipes.tiny.sample import Task
from recipes.tiny.tasks.arithmetic import arithmetic, arithmetic_direct
from recipes.tiny.tasks.copy import copy
from recipes.tiny.tasks.needle import needle

TEXT_TASKS: Final[Mapping[str, Task]] = {
    "arithmetic": arithmetic,
    "arithmetic_direct": arithmetic_direct,
    "copy": copy,
    "needle": needle,
}
