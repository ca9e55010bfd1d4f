"""The wheel holds what it must, and works in a clean environment from another directory."""

import json
import zipfile
from pathlib import Path

import pytest

from ninfer.version import VERSION

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parent.parent.parent


def test_wheel_holds_the_package_and_its_data_only(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = [ROOT / "ninfer" / "assets", ROOT / "ninfer" / "server" / "page"]
    data = [*(ROOT / "ninfer").rglob("*.py"), *(file for one in folders for file in one.glob("*"))]
    wanted = {path.relative_to(ROOT).as_posix() for path in data if path.is_file()}
    assert wanted <= names
    assert "ninfer/assets/chat_template.jinja" in names
    assert "ninfer/py.typed" in names
    assert any(name.endswith("/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert tops == {"ninfer", f"ninfer-{VERSION}.dist-info"}


def test_help_and_version(installed: Path, program, tmp_path: Path):
    ninfer = installed / "ninfer"
    assert "describe" in program(ninfer, "--help", cwd=tmp_path)
    assert program(ninfer, "--version", cwd=tmp_path).strip() == VERSION
    assert "--seed" in program(ninfer, "run", "--help", cwd=tmp_path)


def test_the_model_of_the_package_answers(installed: Path, program, tmp_path: Path):
    command = ("run", "tiny", "--prompt", "What is 4711 + 389?", "--greedy")
    said = program(installed / "ninfer", *command, cwd=tmp_path)
    assert "5100" in said
    assert "ok    hash" in program(installed / "ninfer", "verify", "tiny", cwd=tmp_path)


def test_synthesise_describe_and_run(installed: Path, program, tmp_path: Path):
    ninfer = installed / "ninfer"
    program(
        ninfer, "synth", "--like", "qwen3.6-27b", "--scale", "tiny", "-o", "t.ninfer", cwd=tmp_path
    )
    assert "text/token_embedding" in program(
        ninfer, "describe", "t.ninfer", "--objects", cwd=tmp_path
    )
    command = (ninfer, "run", "t.ninfer", "--prompt", "Hello", "--max-new", "16", "--no-thinking")
    first = program(*command, "--seed", "1", cwd=tmp_path)
    assert first
    assert program(*command, "--seed", "1", cwd=tmp_path) == first
    assert program(*command, "--seed", "2", cwd=tmp_path) != first


def test_benchmark_writes_its_report(installed: Path, program, tmp_path: Path):
    program(installed / "ninfer", "bench", "artifact", "--json", "r.json", cwd=tmp_path)
    values = json.loads((tmp_path / "r.json").read_text())
    assert values["benchmark"] == "artifact"
    assert values["machine"]["revision"] == "installed"
