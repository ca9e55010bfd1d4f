"""Three questions to the packaged `tiny`, answered by `ninfer run` and checked."""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, with which options, and whether what came to stdout is right."""

    title: str
    options: tuple[str, ...]
    wanted: str
    is_right: Callable[[str], bool]


def ends_with_number(number: int) -> Callable[[str], bool]:
    """Whether the last number of an answer is this one."""

    def check(answer: str) -> bool:
        numbers = re.findall(r"-?\d+", answer)
        return bool(numbers) and int(numbers[-1]) == number

    return check


def is_only(text: str) -> Callable[[str], bool]:
    """Whether an answer is this text and nothing else."""
    return lambda answer: answer.strip() == text


def calls(name: str, **arguments: object) -> Callable[[str], bool]:
    """Whether an answer is one call of this function with these arguments."""

    def check(answer: str) -> bool:
        try:
            function = json.loads(answer)["function"]
            return (function["name"], function["arguments"]) == (name, arguments)
        except (ValueError, TypeError, KeyError):
            return False

    return check


QUESTIONS: Final = (
    Question(
        "a sum, worked out in a thought",
        ("--prompt", "What is 9117 + 8364?", "--max-new", "256"),
        "17481",
        ends_with_number(17481),
    ),
    Question(
        "a picture",
        ("--vision", "--messages", "docs/demo/picture.json", "--no-thinking"),
        "3",
        is_only("3"),
    ),
    Question(
        "a request for which there is a tool",
        ("--messages", "docs/demo/tools.json", "--no-thinking"),
        "a call of get_weather for Vienna",
        calls("get_weather", city="Vienna"),
    ),
)


def ask(question: Question, artifact: str = "tiny") -> bool:
    """Print the command, what it prints, and the verdict. False for a wrong or missing answer."""
    command = ["run", artifact, *question.options, "--log-level", "warning"]
    print(f"\n== {question.title}\n$ ninfer {shlex.join(command)}", flush=True)
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ninfer", *command], cwd=ROOT, capture_output=True, text=True
    )
    print((done.stderr + done.stdout).rstrip())
    right = done.returncode == 0 and question.is_right(done.stdout)
    verdict = "right" if right else f"WRONG: {question.wanted} was expected"
    print(f"-- {verdict} ({time.monotonic() - start:.1f} s)", flush=True)
    return right


def main() -> int:
    """Ask all questions; 1 when an answer is wrong."""
    wrong = [question.title for question in QUESTIONS if not ask(question)]
    if wrong:
        print(f"\nwrong: {', '.join(wrong)}")
        return 1
    print("\nall answers are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
