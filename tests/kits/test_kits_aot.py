"""Kernels compile ahead of time without a GPU, and the cache still holds when it has moved."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ninfer.errors import ArtifactError, UsageError
from ninfer.kits import models, relocate
from ninfer.kits.launches import model_calls
from ninfer.kits.triton_cache import kernel_count
from ninfer.ops.tiers import ARCHITECTURES

ROOT = Path(__file__).parents[2]


def compile_ahead(folder: Path, *options: str) -> str:
    """Output of the compiler's own process: this one interprets kernels."""
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tools.aot", str(folder), "--jobs", "2", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(folder: Path) -> dict[str, int]:
    """When each compiled kernel was written."""
    return {
        str(p.relative_to(folder)): p.stat().st_mtime_ns for p in sorted(folder.rglob("*.cubin"))
    }


def test_two_architectures_and_a_move(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    options = ("--arch", "86", "90", "--tokens", "16", "--model", "qwen3.6-27b/groupwise-int")
    out = compile_ahead(here, *options)
    for architecture in (86, 90):
        assert f"sm_{architecture}: " in out and ", 0 failures" in out
    kernels = written(here)
    assert len(kernels) == kernel_count(here) >= 12
    here.rename(there)
    assert relocate(there) == len({Path(name).parent for name in kernels})
    assert relocate(there) == 0
    compile_ahead(there, *options)
    assert written(there) == kernels


@pytest.mark.e2e
@pytest.mark.timeout(3600)
def test_every_kernel_of_every_model_on_every_architecture(tmp_path: Path):
    out = compile_ahead(tmp_path / "cache")
    for architecture in ARCHITECTURES:
        (line,) = [x for x in out.splitlines() if x.startswith(f"sm_{architecture}: ")]
        assert line.endswith(", 0 failures")


def test_group_files_that_are_none_are_refused(tmp_path: Path):
    (tmp_path / "__grp__x.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"__grp__x.json: .*child_paths is missing"):
        relocate(tmp_path)


def test_a_model_without_a_list_is_refused():
    assert "qwen3.6-27b/groupwise-int" in models()
    with pytest.raises(UsageError, match="'nonsense' has no list of kernels"):
        model_calls("nonsense")
