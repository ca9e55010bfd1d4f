"""A kit is built, checked, installed and used: its kernels are found, and nothing is compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ("--architecture", "86", "--model", "qwen3.6-27b/groupwise-int", "--every", "60")


def ninfer(*arguments: object, **changes: str) -> subprocess.CompletedProcess[str]:
    """A command of this checkout, which interprets no kernels."""
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-m", "ninfer", *map(str, arguments)],
        cwd=ROOT,
        env={**environment, **changes},
        capture_output=True,
        text=True,
        check=False,
    )


def test_built_installed_and_hit(tmp_path: Path):
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"torch==2.13.0 --hash=sha256:{'0' * 64}\n")
    made = ninfer("kit", "build", *BUILD, "--lock", lock, "--jobs", 2, "--output", tmp_path)
    assert made.returncode == 0, made.stderr
    kit = json.loads(made.stdout)
    homes = {"NINFER_KITS": str(tmp_path / "kits")}
    assert ninfer("kit", "verify", kit["kit"], "--sha256", kit["sha256"]).returncode == 0
    installed = ninfer("kit", "install", kit["kit"], **homes)
    assert installed.returncode == 0, installed.stderr
    told = json.loads(installed.stdout)
    folder = Path(told["folder"])
    cache = folder / "kernels" / "triton"
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    assert told["triton_kernels"] == sum(path.suffix == ".cubin" for path in before) > 0
    # The same launches again, from the installed cache: every one is found.
    command = ["-m", "tools.aot", str(cache), "--arch", "86", "--every", "60", "--jobs", "1"]
    again = subprocess.run(
        [sys.executable, *command, "--model", "qwen3.6-27b/groupwise-int"],
        cwd=ROOT,
        env={name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    after = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    assert after == before
    # In place, with the package of the kit and the packages of this Python.
    version = subprocess.run(
        [folder / "bin" / "ninfer", "--version"],
        env={**os.environ, "NINFER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert version.stdout.strip() and version.returncode == 0, version.stderr
