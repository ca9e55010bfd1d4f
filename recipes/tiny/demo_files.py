"""The questions of `make demo`, which training never saw: `python -m recipes.tiny.demo_files`."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from PIL import Image

from recipes.tiny.heldout import is_held_out
from recipes.tiny.sample import Sample
from recipes.tiny.scene_layout import Look, arrange
from recipes.tiny.scene_shapes import Scene, draw
from recipes.tiny.scene_words import exact
from recipes.tiny.scenes import sample_of

FOLDER: Final = Path(__file__).resolve().parent.parent.parent / "docs" / "demo"
PICTURE: Final = "shapes.png"
SIDE: Final = 192
LOOKS: Final = (
    Look("red", "circle"),
    Look("red", "circle"),
    Look("red", "circle"),
    Look("blue", "star"),
    Look("green", "square"),
)
HOW_MANY: Final = "How many red circles are there?"

WEATHER: Final[dict[str, Any]] = {
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
    },
}
TIMER: Final[dict[str, Any]] = {
    "name": "set_timer",
    "description": "Start a timer.",
    "parameters": {
        "type": "object",
        "properties": {"minutes": {"type": "integer"}, "label": {"type": "string"}},
        "required": ["minutes"],
    },
}


def sum_question() -> tuple[str, int]:
    """A sum of two numbers with four digits that is held out, and its result."""
    rng = random.Random(1)
    while True:
        left, right = rng.randint(1000, 9999), rng.randint(1000, 9999)
        question = f"What is {left} + {right}?"
        if is_held_out(_asked("arithmetic", question)):
            return question, left + right


def weather_request() -> str:
    """A request for a tool that is held out."""
    for city in ("Paris", "Oslo", "Rome", "Madrid", "Berlin", "London", "Vienna", "Lisbon"):
        for question in (f"What is the weather in {city}?", f"Tell me the weather in {city}."):
            if is_held_out(_asked("tools", question)):
                return question
    raise AssertionError("no held-out request")


def picture() -> Scene:
    """A scene about which HOW_MANY is held out."""
    for seed in range(10_000):
        scene = arrange(random.Random(seed), LOOKS, sides=(SIDE,), noise=False)
        case = exact([(scene,)], HOW_MANY, str(LOOKS.count(LOOKS[0])))
        if is_held_out(sample_of("image_count", case, _ImageFirst())):
            return scene
    raise AssertionError("no held-out picture")


class _ImageFirst(random.Random):
    """Puts the picture before the question."""

    def random(self) -> float:
        """The upper end of chances."""
        return 0.99


def files() -> Iterator[tuple[str, Any]]:
    """Name and JSON value of each conversation."""
    parts = [
        {"type": "image", "image": f"docs/demo/{PICTURE}"},
        {"type": "text", "text": HOW_MANY},
    ]
    yield "picture.json", [{"role": "user", "content": parts}]
    tools = [{"type": "function", "function": function} for function in (TIMER, WEATHER)]
    messages = [{"role": "user", "content": weather_request()}]
    yield "tools.json", {"messages": messages, "tools": tools}


def _asked(task: str, question: str) -> Sample:
    return Sample(task, ({"role": "user", "content": question}, {"role": "assistant"}))


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    Image.fromarray(draw(picture())).save(FOLDER / PICTURE, "PNG", optimize=True)
    for name, value in files():
        (FOLDER / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
