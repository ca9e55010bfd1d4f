"""docs/request-trace.md names files that a request really enters, grouped in the right order."""

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
    """Files of the package in the order in which `argv` first calls a function of theirs.

    Importing a module and reading its classes is not a call.
    """
    order: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        at_import = code.co_name == "<module>" or "__module__" in frame.f_locals
        if event == "call" and not at_import and "/ninfer/" in code.co_filename:
            order.setdefault(code.co_filename)

    sys.setprofile(note)
    try:
        assert main(argv) == 0
    finally:
        sys.setprofile(None)
    inside = (Path(name) for name in order if Path(name).is_relative_to(ROOT))
    return [path.relative_to(ROOT).as_posix() for path in inside]


def test_a_request_enters_the_named_files_step_by_step(tmp_path: Path, own_log: None):
    artifact = tmp_path / "micro.ninfer"
    synthesise(artifact, like="qwen3.6-27b", scale="micro")
    argv = ["run", str(artifact), "--prompt", "Hello", "--max-new", "4", "--seed", "1"]
    entered = entered_files(argv)
    steps = files_by_step()
    assert len(steps) == 15
    assert [name for step in steps for name in step if name not in entered] == []
    first = [min(entered.index(name) for name in step) for step in steps]
    assert first == sorted(first), "the steps are not in the order of the run"
