"""How many held-out items `tiny` answers rightly with each KV format: outcomes of an evaluation."""

from collections.abc import Mapping
from typing import Final

SHOWN: Final = (
    "Right answers of the packaged `tiny` (head rows of 64), on a CPU with the reference ops: "
    "`ninfer evals run tiny --suite tiny --limit 25 --kv-dtype FORMAT`, greedy, 2026-12-01. With "
    "so few items a difference of three or four is chance. A small model with short contexts says "
    "little of a 27B at 100,000 tokens: `--auto` takes int4 last."
)
# Format -> task -> (right, asked); a task that was not asked with a format is left out.
RIGHT: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {}
