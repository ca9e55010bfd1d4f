"""README's commands run on a clean clone, in the order in which they stand there."""

import re
import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parent.parent.parent

# Commands of README that are not run here, and why.
ELSEWHERE = {
    "make test": "continuous integration runs it on a fresh clone itself",
    "pip install .": "test_e2e_wheel.py installs the package into a clean environment",
    "ninfer fetch": "it downloads gigabytes; tests/artifact fetches from a server of its own",
    "ninfer verify": "the file is that of fetch; tests/engine verifies synthetic ones",
    "ninfer convert": "it needs a checkpoint; tests/convert makes and converts small ones",
    "ninfer serve": "it runs until it is stopped; tests/server starts it in processes of its own",
    "ninfer chat": "it asks for lines; tests/client talks to it in a terminal of its own",
    "ninfer connect": "it asks a running server; tests/connect has one",
    "make demo PIP_ARGS=": "the same as make demo, with an index that only some machines reach",
}


def readme_commands() -> list[str]:
    """Lines of README's shell blocks without their comments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def run_here(command: str) -> bool:
    """False for the commands that ELSEWHERE lists."""
    return not any(
        command == other or command.startswith((f"{other} ", f"{other}'")) for other in ELSEWHERE
    )


def test_readme_runs_on_a_clean_clone(tmp_path: Path, program):
    commands = readme_commands()
    assert commands[:2] == ["make demo", "make test"]
    clone = tmp_path / "clone"
    program("git", "clone", "--quiet", ROOT, clone, cwd=tmp_path)
    for command in filter(run_here, commands):
        output = program("sh", "-c", command, cwd=clone, path=clone / ".venv" / "bin")
        if command == "make demo":
            assert "installing" in output and "all answers are right" in output
            assert output.count("-- right") == 3
    assert "installing" not in program("make", "demo", cwd=clone), "make demo installs twice"
    status = program("git", "status", "--porcelain", cwd=clone)
    assert status == "", "README's commands leave files that git does not ignore"


def test_missing_or_old_python_is_said_clearly(tmp_path: Path, program):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    said = program("make", "demo", "PYTHON=", cwd=tmp_path, fails=True)
    assert "needs Python 3.11 or newer and found none" in said
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    said = program("make", "demo", f"PYTHON={old}", cwd=tmp_path, fails=True)
    assert "old-python cannot be run or is too old" in said
    assert not (tmp_path / ".venv").exists()
