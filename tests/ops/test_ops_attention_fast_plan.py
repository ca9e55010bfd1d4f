"""Sizes of the CUDA attention kernels: cuts, what fits a card, what is served, what compiles."""

import subprocess
from pathlib import Path

import pytest
import torch
import triton

from ninfer.errors import UnsupportedError
from ninfer.ops import PagedKV, RaggedRows
from ninfer.ops.attention import fast
from ninfer.ops.attention.fast_plan import CUTS, FORMS, AttendPlan, Cuts, attend_plan
from ninfer.ops.linear.compiler import compile_program
from ninfer.ops.linear.fast_plan import ARCHITECTURES, shared_limit

HEADS = ((24, 4), (16, 2))


@pytest.mark.parametrize("cuts", [CUTS, Cuts(3, 64, 128), Cuts(1, 512, 512)])
def test_splits_are_counted_as_the_kernel_cuts_them(cuts: Cuts):
    starts = [i * cuts.short for i in range(cuts.shorts)]
    starts += [cuts.shorts * cuts.short + i * cuts.long for i in range(20)]
    for length in (1, 63, 64, 65, 191, 192, 193, 511, 512, 513, 8191, 8192, 8193, 9000):
        if length <= starts[-1]:
            assert cuts.splits(length) == sum(start < length for start in starts)


@pytest.mark.parametrize("number", ARCHITECTURES)
@pytest.mark.parametrize("form", FORMS)
def test_blocks_fit_a_card(form: str, number: int):
    for query, heads in HEADS:
        for rows in (1, 6, 8, 9, 16, 24, 32, 512):
            plan = attend_plan(number, form, heads, query // heads, rows)
            assert plan.rows >= min(rows, 24)
            assert plan.shared_bytes <= shared_limit(number)
            assert plan.blocks * (plan.shared_bytes + 1024) <= shared_limit(number) + 1024 or (
                plan.blocks == 1
            )


def used(program_binary: bytes, folder: Path) -> str:
    """Registers and stack of a kernel, by the tool that comes with Triton."""
    file = folder / "kernel.cubin"
    file.write_bytes(program_binary)
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    done = subprocess.run([tool, "-res-usage", file], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", [80, 90, 120])
def test_kernels_compile_and_keep_their_sums_in_registers(form: str, number: int, tmp_path: Path):
    for program in fast.programs(number, attend_plan(number, form, 4, 6, 24)):
        text = used(compile_program(program), tmp_path)
        stack = int(text.split("STACK:")[1].split()[0])
        # Some addresses of the way to the next item; 24 rows of sums would be 192 bytes.
        assert stack <= 64, (program.source, text)


def test_calls_of_other_forms_are_refused_by_name():
    def call(count: int = 1, dim: int = 256, page: int = 64) -> tuple[object, ...]:
        q = torch.zeros(count, 4, dim, dtype=torch.bfloat16)
        words = torch.zeros(2, page, 2, dim, dtype=torch.bfloat16)
        lengths = torch.tensor([count])
        table = torch.zeros(1, 2, dtype=torch.int64)
        rows = RaggedRows(torch.tensor([0, count]), lengths, table, torch.zeros(1))
        return q, PagedKV("bf16", words, words), rows

    assert not fast.serves(*call())
    with pytest.raises(UnsupportedError, match=r"the CUDA form takes up to 64 bfloat16 rows"):
        fast.paged_attention(*call(), scale=1.0)


def test_a_plan_names_all_that_decides_bits_and_time():
    plan = AttendPlan("int8", 4, 6, 1, 5, CUTS)
    assert plan.defines["NT"] == 1 and plan.join_defines["HEADS"] == 24
    assert plan.defines["SHORTS"] == plan.join_defines["SHORTS"] == CUTS.shorts
