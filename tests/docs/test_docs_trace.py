"""docs/request-trace.md names files that a request really enters, in the right order."""

import inspect
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from ninfer.cli.main import main
from ninfer.convert import synthesise

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = str(ROOT / "ninfer")
PAGE = ROOT / "docs" / "request-trace.md"


@pytest.fixture
def own_log() -> Iterator[None]:
    """Undo what a command does to the package's logger."""
    logger = logging.getLogger("ninfer")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def files_by_step() -> list[list[str]]:
    """Files that each numbered step names, in page order."""
    text = PAGE.read_text(encoding="utf-8")
    steps = re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:]
    return [re.findall(r"\(\.\./(ninfer/[^)]+)\)", step) for step in steps]


def entered_files(argv: list[str]) -> list[str]:
    """Files of the package in the order in which `argv` calls functions of theirs.

    Code that runs at import, class bodies included, is not a call.
    """
    entered: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        function = code.co_flags & inspect.CO_OPTIMIZED
        if event == "call" and function and code.co_filename.startswith(PACKAGE):
            entered.append(code.co_filename)

    sys.setprofile(note)
    try:
        assert main(argv) == 0
    finally:
        sys.setprofile(None)
    return [Path(name).relative_to(ROOT).as_posix() for name in entered]


def test_a_request_enters_the_named_files_step_by_step(tmp_path: Path, own_log: None):
    artifact = tmp_path / "micro.ninfer"
    synthesise(artifact, like="qwen3.6-27b", scale="micro")
    argv = ["run", str(artifact), "--prompt", "Hello", "--max-new", "4", "--seed", "1"]
    entered = entered_files(argv)
    steps = files_by_step()
    assert len(steps) == 15
    assert {name for step in steps for name in step} - set(entered) == set()
    rest = iter(entered)
    for step in steps:
        assert step[0] in rest, f"{step[0]} is not entered after the steps before it"
