"""Kernels compile ahead of time without a GPU, and the cache still holds when it has moved."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ninfer.errors import ArtifactError, UnsupportedError, UsageError
from ninfer.kits import models, relocate
from ninfer.kits.launches import model_calls
from ninfer.kits.triton_cache import kernel_count
from ninfer.ops import aot
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
    options += ("--every", "12")
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
@pytest.mark.timeout(1200)
def test_a_part_of_the_kernels_on_every_architecture(tmp_path: Path):
    model = ("--model", "qwen3.6-35b-a3b/groupwise-int", "--every", "36")
    out = compile_ahead(tmp_path / "cache", *model)
    for architecture in ARCHITECTURES:
        (line,) = [x for x in out.splitlines() if x.startswith(f"sm_{architecture}: ")]
        assert line.endswith(", 0 failures")


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_every_kernel_of_every_model_on_every_architecture(tmp_path: Path):
    out = compile_ahead(tmp_path / "cache")
    for architecture in ARCHITECTURES:
        (line,) = [x for x in out.splitlines() if x.startswith(f"sm_{architecture}: ")]
        assert line.endswith(", 0 failures")


BROKEN = """
import torch, triton, triton.language as tl
from ninfer.ops.aot import compile_calls
from ninfer.ops.launch import launch

@triton.jit
def right(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), 1.0)

@triton.jit
def wrong(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), nonsense)

if __name__ == "__main__":
    x = torch.empty(16, device="meta")
    calls = [lambda k=k: launch(k, (1,), x, N=16, num_warps=1) for k in (wrong, right, right)]
    for record in compile_calls(calls, [90]):
        print(record.kernel, record.architecture, record.error)
"""


def test_a_kernel_that_does_not_compile_is_named_and_stops_no_other(tmp_path: Path):
    script = tmp_path / "broken.py"
    script.write_text(BROKEN, encoding="utf-8")
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("wrong 90 ") and "nonsense is not defined" in first
    assert second == "right 90 None"


def test_a_process_that_interprets_kernels_cannot_compile_them():
    with (
        pytest.raises(UnsupportedError, match="TRITON_INTERPRET is set"),
        aot.compiling(90, []),
    ):
        pass


def test_group_files_that_are_none_are_refused(tmp_path: Path):
    (tmp_path / "__grp__x.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"__grp__x.json: .*child_paths is missing"):
        relocate(tmp_path)


def test_a_model_without_a_list_is_refused():
    assert "qwen3.6-27b/groupwise-int" in models()
    with pytest.raises(UsageError, match="'nonsense' has no list of kernels"):
        model_calls("nonsense")
