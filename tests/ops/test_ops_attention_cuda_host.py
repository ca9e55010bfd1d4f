"""The CUDA kernels of attention on the host: every thread a fiber, copies late, addresses checked.

Proves index maps, meetings, masks and sums of the sources that a card runs; needs g++.
"""

import ctypes
import subprocess
from functools import cache as kept
from importlib.resources import files
from pathlib import Path
from shutil import copyfile
from tempfile import mkdtemp

import pytest
import torch
from torch import Tensor

from ninfer.ops import PagedKV, RaggedRows
from ninfer.ops.attention import fast, reference
from ninfer.ops.attention.fast_plan import AttendPlan, Cuts
from ninfer.ops.case import Inputs
from ninfer.ops.kv_cache import reference as cache_reference
from ninfer.ops.linear.compiler import Program
from ninfer.ops.linear.launcher import Kernel, Launch
from ninfer.ops.tolerance import BF16

pytestmark = pytest.mark.soak

HOST = Path(__file__).parent / "cuda_host"
FORMATS = ("bf16", "int8", "fp8")
SCALE = 1 / 16
# Three splits of 64 positions, then splits of 128: their border is at 192.
CUTS = Cuts(shorts=3, short=64, long=128)
Scene = tuple[Tensor, PagedKV, RaggedRows]


@kept
def library(program: Program) -> ctypes.CDLL:
    """The kernel of a program, with the host's machine.cuh for the card's."""
    folder = Path(mkdtemp())
    for file in (*files("ninfer.ops.attention").joinpath("cuda").iterdir(), *HOST.iterdir()):
        copyfile(str(file), folder / file.name)
    flags = [f"-D{name}={value}" for name, value in program.defines]
    flags += ["-DHOPPER=1", *(["-DJOIN"] if program.source == "attention/join.cu" else [])]
    target = folder / "kernel.so"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w", *flags]
    done = subprocess.run(
        [*command, str(folder / "attention.cpp"), "-o", str(target)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(target))


class Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form's own launches, played by the host; what they leave unwritten is NaN."""
    poisoned = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    assert poisoned
    held: list[tuple[Tensor, ...]] = []

    def addresses(*tensors: Tensor | None) -> list[int | None]:
        held.append(tuple(tensor for tensor in tensors if tensor is not None))
        return [None if tensor is None else tensor.data_ptr() for tensor in tensors]

    def start(chosen: Kernel, launch: Launch, at: list[int | None], sizes: tuple[int, ...]) -> None:
        known = held.pop()
        buffers = (Buffer * len(known))(*(Buffer(x.data_ptr(), x.nbytes) for x in known))
        chosen.function.run(
            launch.blocks,
            launch.threads,
            launch.shared_bytes,
            ctypes.c_uint64(launch.blocks + len(known)),
            buffers,
            len(known),
            (ctypes.c_void_p * len(at))(*at),
            (ctypes.c_int * len(sizes))(*sizes),
        )

    def loaded(device: int, program: Program) -> Kernel:
        return Kernel(library(program), device, 90, 2)

    monkeypatch.setattr(fast, "_index", lambda x: 0)
    monkeypatch.setattr(fast, "architecture", lambda device: 90)
    monkeypatch.setattr(fast, "_addresses", addresses)
    monkeypatch.setattr(fast, "start", start)
    monkeypatch.setattr(fast, "_loaded", loaded)
    yield
    torch.use_deterministic_algorithms(False)


def scene(
    new: tuple[int, ...], cached: tuple[int, ...], form: str, heads: tuple[int, int] = (4, 2)
) -> Scene:
    inputs = Inputs(torch.bfloat16, torch.device("cpu"), 3)
    rows = inputs.ragged(new, cached)
    pages = int(rows.page_table.max()) + 2
    return inputs.normal(sum(new), heads[0], 256), inputs.cache(form, pages, heads[1], 256), rows


def run(call: Scene, tiles: int = 1, blocks: int = 1, join: int = 1) -> Tensor:
    q, cache, rows = call
    heads = cache.keys.shape[2]
    plan = AttendPlan(cache.format, heads, q.shape[1] // heads, tiles, blocks, CUTS, join)
    return fast.attend(q, cache, rows, SCALE, plan)


def check(got: Tensor, call: Scene) -> None:
    q, cache, rows = call
    want = reference.paged_attention(q.double(), cache, rows, scale=SCALE)
    for row, exact in zip(got, want, strict=True):
        assert BF16.violation(row, exact) is None


def same_bits(x: Tensor, y: Tensor) -> bool:
    return torch.equal(x.contiguous().view(torch.int16), y.contiguous().view(torch.int16))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("cached", [0, 31, 32, 63, 64, 191, 192, 330])
def test_lengths_around_each_border(form: str, cached: int):
    call = scene((1,), (cached,), form)
    check(run(call, join=2), call)


@pytest.mark.parametrize("form", FORMATS)
def test_sequences_and_rows_beside_each_other(form: str):
    call = scene((3, 0, 1, 9), (190, 7, 0, 75), form, (6, 2))
    for tiles, blocks in ((1, 1), (2, 3), (4, 2)):
        check(run(call, tiles, blocks), call)


@pytest.mark.parametrize("form", FORMATS)
def test_a_row_is_the_same_in_any_company(form: str):
    q, cache, rows = call = scene((6, 2), (255, 40), form, (6, 2))
    together = run(call, 2, 2)
    for first, count, tiles, blocks in ((0, 6, 4, 1), (0, 6, 1, 3), (5, 1, 1, 2), (2, 3, 2, 1)):
        length = torch.tensor([255 + first + count])
        alone = RaggedRows(torch.tensor([0, count]), length, rows.page_table[:1], length)
        part = slice(first, first + count)
        assert same_bits(run((q[part], cache, alone), tiles, blocks), together[part])


@pytest.mark.parametrize("form", FORMATS)
def test_what_a_row_must_not_see_leaves_it_alone(form: str):
    q, cache, rows = call = scene((4,), (190,), form)
    want = run(call)
    slot = rows.page_table[0, 192 // 64] * 64 + 192 % 64
    bad = torch.randn(1, 2, 256).bfloat16()
    bad[0, 1, 7] = torch.nan
    cache_reference.write_kv(bad, bad, cache, slot.view(1))
    got = run((q, cache, rows), 1, 2)
    assert same_bits(got[:2], want[:2])
    assert torch.isfinite(got[:, :2]).all()
    assert torch.isnan(got[2:, 2:]).flatten(1).any(1).all()


def test_rows_behind_the_last_sequence_stay_unwritten():
    q, cache, rows = scene((2, 1), (70, 3), "int8")
    longer = torch.cat([q, q])
    got = run((longer, cache, rows), 1, 2)
    check(got[:3], (q, cache, rows))
    assert torch.isnan(got[3:]).all()


def test_a_scale_of_infinity_is_not_a_number():
    q, cache, rows = scene((1,), (40,), "int8")
    assert cache.value_scales is not None
    cache.value_scales[rows.page_table[0, 0], 3, 0, 2] = torch.inf
    got = run((q, cache, rows))
    assert torch.isnan(got[0, :2, 128:192]).all()
    assert torch.isfinite(got[0, :2, :128]).all() and torch.isfinite(got[0, 2:]).all()


@pytest.mark.parametrize("heads", [(24, 4), (16, 2)])
@pytest.mark.parametrize("form", FORMATS)
def test_the_heads_of_the_models(form: str, heads: tuple[int, int]):
    call = scene((1, 2), (140, 30), form, heads)
    check(run(call, 2, 1), call)


def test_scores_far_apart_and_strided_queries():
    q, cache, rows = scene((4,), (200,), "int8")
    wide = torch.zeros(4, 8, 256, dtype=torch.bfloat16)
    wide[:, ::2] = q * 30
    call = (wide[:, ::2], cache, rows)
    check(run(call, 1, 2), call)
