"""What compiled kernels need of a card is read right, and too much of it is named."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import triton

from ninfer.errors import KitError
from ninfer.ops.attention.fast import programs
from ninfer.ops.attention.fast_plan import attend_plan
from ninfer.ops.cubin import Resources, resources
from ninfer.ops.linear.compiler import Program, compile_program

SMALL = Resources("k", registers=64, threads=128, frame_bytes=0, shared_bytes=1024)


@pytest.mark.parametrize("architecture", [80, 90])
def test_they_are_what_nvidias_own_tool_says(architecture: int, tmp_path: Path):
    attend, join = programs(architecture, attend_plan(architecture, "int8", 4, 6, 6))
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    for program in (attend, join, Program("read.cu", architecture, ())):
        file = tmp_path / program.name
        file.write_bytes(compile_program(program))
        said = subprocess.run(
            [tool, "-res-usage", file], capture_output=True, text=True, check=True
        ).stdout
        pattern = r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)"
        want = {(n, int(r), int(f), int(s)) for n, r, f, s in re.findall(pattern, said)}
        found = resources(file.read_bytes(), "it")
        assert {(x.kernel, x.registers, x.frame_bytes, x.shared_bytes) for x in found} == want
        assert want and all(x.threads > 0 and x.excess(architecture) is None for x in found)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"registers": 256}, "256 registers of 255"),
        ({"threads": 1025}, "1025 threads of 1024"),
        ({"registers": 121, "threads": 544}, "69632 registers of 65536 a block"),
        ({"shared_bytes": 99 * 1024 + 1}, "101377 bytes of shared memory of 101376"),
    ],
)
def test_too_much_is_named(change: dict[str, int], reason: str):
    assert SMALL.excess(86) is None
    assert reason in str(replace(SMALL, **change).excess(86))


def test_a_card_with_more_shared_memory_takes_more():
    assert replace(SMALL, shared_bytes=160 * 1024).excess(90) is None


@pytest.mark.parametrize("code", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(10), b"x" * 100])
def test_what_is_no_machine_code_is_refused(code: bytes):
    with pytest.raises(KitError, match="bad: no machine code"):
        resources(code, "bad")
