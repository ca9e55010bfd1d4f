"""Small suites in folders."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def item_of(number: int, task: str = "sums", **changes: Any) -> dict[str, Any]:
    """The JSON object of an item."""
    return {
        "id": f"{task}/{number}",
        "task": task,
        "messages": [{"role": "user", "content": f"{number} + 1 = ?"}],
        "tools": [],
        "thinking": False,
        "max_new": 8,
        "grade": {"kind": "number", "answer": number + 1},
        "reference": f"{number + 1}",
        **changes,
    }


def write_suite(folder: Path, tasks: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    """A folder with one file for each task."""
    folder.mkdir(exist_ok=True)
    for task, items in tasks.items():
        text = "".join(json.dumps(item) + "\n" for item in items)
        (folder / f"{task}.jsonl").write_text(text, encoding="utf-8")
    return folder
