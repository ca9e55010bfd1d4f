"""How many held-out items `tiny` answers rightly with each KV format: outcomes of an evaluation."""

from collections.abc import Mapping
from typing import Final

SHOWN: Final = (
    "Right answers of the packaged `tiny`, on a CPU with the reference ops: `ninfer evals run tiny "
    "--suite tiny --limit 25 --kv-dtype FORMAT`, greedy, 2026-12-01. With so few items a "
    "difference of three or four is chance. Of the 347 items that were asked with both formats, "
    "bf16 got 282 right and int4 282, and 301 answers have the same ids. A small model with short "
    "contexts says little of a 27B at 100,000 tokens: `--auto` takes int4 late."
)
# Format -> task -> (right, asked); fewer than 25 where the time ended first.
RIGHT: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "bf16": {
        "arithmetic": (23, 25),
        "chat": (15, 25),
        "copy": (25, 25),
        "csv": (25, 25),
        "image_colour": (16, 25),
        "image_count": (20, 25),
        "image_describe": (23, 25),
        "image_position": (11, 25),
        "json_object": (24, 25),
        "jsonl": (24, 25),
        "languages": (25, 25),
        "lists": (7, 25),
        "needle_4k": (21, 23),
        "tools": (23, 25),
    },
    "int4": {
        "arithmetic": (24, 25),
        "chat": (15, 25),
        "copy": (25, 25),
        "csv": (25, 25),
        "image_colour": (15, 25),
        "image_count": (20, 25),
        "image_describe": (23, 25),
        "image_position": (10, 25),
        "json_object": (24, 25),
        "jsonl": (24, 24),
        "languages": (25, 25),
        "lists": (8, 25),
        "needle_4k": (22, 24),
        "tools": (23, 25),
    },
}
