"""Compilations are counted by kind, and a kit is proven only by starts that could have failed."""

import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from kit_files import write_kit

from ninfer.errors import UnsupportedError
from ninfer.kits.prove import objections
from ninfer.kits.stack import Stack
from ninfer.ops.compiler_runs import counting

ROOT = Path(__file__).parents[2]
COUNTED = """
import subprocess, sys
from dataclasses import asdict
import torch, triton, triton.language as tl
from ninfer.ops import aot
from ninfer.ops.compiler_runs import counting
from ninfer.ops.launch import launch
from ninfer.ops.linear import compiler

@triton.jit
def fill(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), 1.0)

folder = sys.argv[1]
aot.use_cache(folder + "/triton")
x = torch.empty(16, device="meta")
program = compiler.Program("read.cu", 90, ())

def work():
    with counting() as runs:
        with aot.compiling(90, []):
            launch(fill, (1,), x, N=16, num_warps=1)
        compiler.binary(program, compiler.Path(folder))
        subprocess.run([folder + "/x86_64-linux-gnu-gcc-13", "-shared"], check=True)
        subprocess.run([folder + "/x86_64-linux-gnu-gcc-13", "--version"], check=True)
        subprocess.run(["true"], check=True)
    return asdict(runs)

first = work()
subprocess.run([folder + "/x86_64-linux-gnu-gcc-13"], check=True)
fill.device_caches.clear()
print([first, work()])
"""
RUNS = {"triton": 3, "triton_found": 0, "cuda": 2, "assembler": 3, "c_launchers": 4, "kernels": 8}
BARE = {"device": "H200", "kit": False, "compiled": RUNS, "token_ids": [1, 2]}
FOUND = {**RUNS, "triton": 0, "triton_found": 3, "cuda": 0, "assembler": 0, "kernels": 0}
WITH = {"device": "H200", "kit": True, "compiled": FOUND, "token_ids": [1, 2]}


def test_each_compiler_is_counted_and_what_is_found_is_not(tmp_path: Path):
    fake = tmp_path / "x86_64-linux-gnu-gcc-13"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    script = tmp_path / "counted.py"
    script.write_text(COUNTED)
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, again = json.loads(done.stdout.replace("'", '"'))
    want = {"triton": 1, "triton_found": 0, "cuda": 1, "assembler": 1, "c_launchers": 1}
    assert first == want
    assert again == {**want, "triton": 0, "triton_found": 1, "cuda": 0, "assembler": 0}


def test_a_process_that_interprets_kernels_is_refused():
    with pytest.raises(UnsupportedError, match="TRITON_INTERPRET is set"), counting():
        pass


def test_launchers_in_c_are_no_objection():
    assert objections(BARE, WITH) == []


@pytest.mark.parametrize(
    ("which", "change", "reason"),
    [
        ("bare", {"device": "cpu"}, "there is no card"),
        ("bare", {"kit": True}, "the start without a kit had one"),
        ("bare", {"compiled": FOUND}, "nothing to save"),
        ("with", {"kit": False}, "was not used"),
        ("with", {"compiled": {**FOUND, "kernels": 1}}, "1 compilations of kernels were left"),
        ("with", {"token_ids": [1, 3]}, "ids of the two answers differ"),
    ],
)
def test_every_objection(which: str, change: dict[str, object], reason: str):
    bare, with_kit = deepcopy(BARE), deepcopy(WITH)
    (bare if which == "bare" else with_kit).update(change)
    (found,) = objections(bare, with_kit)
    assert reason in found


@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_without_a_card_both_starts_run_and_prove_nothing(tmp_path: Path):
    kit = write_kit(tmp_path / "kit.tar.gz", stack=Stack.here())
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    command = [sys.executable, "-m", "ninfer", "kit", "prove", str(kit), "tiny"]
    done = subprocess.run(
        [*command, "--max-new", "4", "--json", str(tmp_path / "proof.json")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    proof = json.loads((tmp_path / "proof.json").read_text())
    assert proof == json.loads(done.stdout)
    assert not proof["proven"] and "there is no card" in proof["against"][0]
    assert proof["with_kit"]["token_ids"] == proof["without_kit"]["token_ids"] != []
    assert proof["without_kit"]["compiled"]["kernels"] == 0
