"""The held-out suite of the demo checkpoints: questions that training never sees.

Run as `python -m recipes.tiny.build_suite [OUT_DIR] [--task NAME]`. One JSONL file a task; the same
bytes on every run, as far as the encoder of clips gives them.
"""

import argparse
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import ninfer.evals
from recipes.tiny.encode import Encoder
from recipes.tiny.heldout import is_held_out, prompt_digest
from recipes.tiny.sample import Sample, Task
from recipes.tiny.scenes import VISION_TASKS, data_uri
from recipes.tiny.tasks import TEXT_TASKS
from recipes.tiny.tasks.needle import needle

SUITE_FOLDER: Final = Path(ninfer.evals.__file__).parent / "suites" / "tiny"
SEED: Final = "held out"
ITEMS: Final = 200
# Tasks with another number of items.
FEWER: Final = {"needle_8k": 100}

# Long sums are asked with thinking; needles in two lengths.
_TRAINING_ONLY: Final = ("arithmetic_direct", "needle")
SUITE_TASKS: Final[Mapping[str, Task]] = {
    **{name: task for name, task in TEXT_TASKS.items() if name not in _TRAINING_ONLY},
    "needle_4k": partial(needle, tokens=4096),
    "needle_8k": partial(needle, tokens=8192),
    **VISION_TASKS,
}

# Characters of the data URIs of one item, by number of images or clips. Pictures without noise stay
# below, all others are far above; so the limit keeps files small and leaves answers as they fall.
MOST_CHARACTERS: Final = {1: 5000, 2: 9000}

_PARTS: Final = {"image": "image_url", "video": "video_url"}


def samples(name: str, count: int) -> list[Sample]:
    """Different held-out samples of a task, with small media; the same on every call."""
    rng = random.Random(f"{SEED}/{name}")
    found: dict[bytes, Sample] = {}
    while len(found) < count:
        sample = SUITE_TASKS[name](rng)
        if is_held_out(sample) and has_small_media(sample):
            found.setdefault(prompt_digest(sample), sample)
    return list(found.values())


def has_small_media(sample: Sample) -> bool:
    """Whether the files of a sample are within MOST_CHARACTERS."""
    count = len(sample.media)
    return not count or MOST_CHARACTERS[count] >= sum(
        len(data_uri(sample, index)) for index in range(count)
    )


def item(name: str, number: int, sample: Sample, encoder: Encoder) -> dict[str, Any]:
    """The line of a suite file, as JSON-able values."""
    answer = encoder.encode(sample).target[::-1]
    # The last turn alone: the answers of a tool loop before it are part of the question.
    length = int(answer.argmin()) if not answer.all() else len(answer)
    return {
        "id": f"{name}-{number:03d}",
        "task": name,
        "messages": _with_files(sample),
        "tools": list(sample.tools),
        "thinking": sample.thinking,
        "max_new": -(-(2 * length + 16) // 32) * 32,
        "grade": dict(sample.grade),
        "reference": sample.messages[-1],
    }


def _with_files(sample: Sample) -> list[dict[str, Any]]:
    """The messages before the answer, with media as data URIs."""
    indices = iter(range(len(sample.media)))
    messages = []
    for message in sample.messages[:-1]:
        content = message["content"]
        if not isinstance(content, str):
            content = list(_filed(sample, content, indices))
        messages.append({**message, "content": content})
    return messages


def _filed(
    sample: Sample, parts: list[dict[str, Any]], indices: Iterator[int]
) -> Iterator[dict[str, Any]]:
    for part in parts:
        kind = _PARTS.get(part["type"])
        yield {"type": kind, kind: {"url": data_uri(sample, next(indices))}} if kind else part


def write(folder: Path, names: Iterable[str] = tuple(SUITE_TASKS)) -> None:
    """Write the files of these tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder = Encoder()
    for name in names:
        lines = [
            json.dumps(item(name, number, sample, encoder), ensure_ascii=False)
            for number, sample in enumerate(samples(name, FEWER.get(name, ITEMS)))
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Write the suite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", default=SUITE_FOLDER)
    parser.add_argument("--task", action="append", choices=tuple(SUITE_TASKS), help="all if none")
    arguments = parser.parse_args()
    write(arguments.out, arguments.task or SUITE_TASKS)


if __name__ == "__main__":
    main()
