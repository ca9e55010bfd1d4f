"""The CUDA kernel of the Gated DeltaNet's rows on the host: criterion, cuts, windows, company."""

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from shutil import copyfile
from tempfile import mkdtemp

import pytest
import torch
from torch import Tensor

from ninfer.ops import dispatch
from ninfer.ops.compare import compare
from ninfer.ops.delta_net import fast, portable
from ninfer.ops.delta_net.cases import CASES
from ninfer.ops.delta_net.row_plan import RowPlan, row_plan
from ninfer.ops.linear.compiler import Program, compile_program
from ninfer.ops.linear.fast_plan import ARCHITECTURES
from ninfer.ops.tensors import ConvState, DeltaRows, DeltaState, DeltaWeights, RaggedRows
from tests.ops.delta_scene import (
    SLOT,
    Scene,
    in_pieces,
    in_windows,
    part_of,
    run,
)

pytestmark = [
    pytest.mark.soak,
    # Triton 3.6's interpreter makes scalars of arrays for every range with a run-time bound.
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]
HOST = Path(__file__).parent / "cuda_host"
FAMILY = ("causal_conv_silu", "gdn_gating", "gated_delta_rule", "delta_net")
HOPPER = RowPlan(2, 8)
OLDER = RowPlan(1, 16)
# A few rows at once, so that short runs take several turns; other cuts of the matrix.
SHORT = RowPlan(2, 8, rows=4)
PLANS = [SHORT, OLDER, RowPlan(4, 4, rows=8, foresees=False), RowPlan(2, 4, lanes=4)]
SEEDS = iter(range(1, 1 << 30))


@cache
def library(program: Program) -> ctypes.CDLL:
    """The kernel of a program, with the host's machine.cuh and words.cuh for the card's."""
    folder = Path(mkdtemp())
    for file in (*files("ninfer.ops.delta_net").joinpath("cuda").iterdir(), *HOST.iterdir()):
        copyfile(str(file), folder / file.name)
    flags = [f"-D{name}={value}" for name, value in program.defines]
    flags.append(f"-DHOPPER={int(program.architecture >= 90)}")
    target = folder / "kernel.so"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w", *flags]
    done = subprocess.run(
        [*command, str(folder / "delta.cpp"), "-o", str(target)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(target))


class Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def host_rows(
    plan: RowPlan,
    x: DeltaRows,
    weights: DeltaWeights,
    conv: ConvState,
    delta: DeltaState,
    rows: RaggedRows,
    out: Tensor,
    eps: float,
    part: int,
) -> None:
    """What `fast.launch_rows` starts on a card."""
    heads, key_heads = out.shape[1], x.key.shape[1]
    halves = delta.matrix.dtype is torch.bfloat16
    number = 90 if plan.pieces > 1 else 80
    kernel = library(fast.program(number, plan, heads, key_heads, halves=halves))
    if delta.arrivals is None:
        delta = replace(delta, arrivals=portable.counters(delta))
    tensors = fast.arguments(x, weights, conv, delta, rows, out)
    held = [tensor for tensor in tensors if tensor is not None]
    buffers = (Buffer * len(held))(*(extent(tensor) for tensor in held))
    addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    numbers = fast.sizes(x, conv, delta, eps, part)
    blocks = plan.pieces * heads * rows.state_slots.shape[0]
    grid = (blocks, plan.threads, plan.shared_bytes, plan.pieces)
    kernel.run(
        *grid,
        ctypes.c_uint64(next(SEEDS)),
        buffers,
        len(held),
        (ctypes.c_void_p * len(addresses))(*addresses),
        (ctypes.c_int * len(numbers))(*numbers),
    )


def extent(tensor: Tensor) -> Buffer:
    """The bytes from a tensor's first element to its last."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    size = (last + 1) * tensor.element_size() if tensor.numel() else 0
    return Buffer(tensor.data_ptr(), size)


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[RowPlan], None]]:
    def choose(plan: RowPlan) -> None:
        monkeypatch.setattr(portable, "launch_rows", partial(host_rows, plan))

    with dispatch.using("portable", only=FAMILY):
        yield choose


def scene_of(heads: tuple[int, int], kept: torch.dtype = torch.float32, window: int = 0) -> Scene:
    return Scene((*heads, 128, 128), 4, window, torch.bfloat16, kept)


def same(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


@pytest.mark.parametrize("plan", [HOPPER, *PLANS], ids=str)
def test_the_criterion_is_met(plan: RowPlan, on_host):
    on_host(plan)
    (case,) = [c for c in CASES if c.name == "held_group_of_three"]
    assert compare(case, torch.bfloat16) == []


@pytest.mark.parametrize("plan", [HOPPER, OLDER], ids=str)
@pytest.mark.parametrize("name", ["decode_27b", "held_27b", "chunk_35b"])
def test_the_sizes_of_the_models(name: str, plan: RowPlan, on_host):
    on_host(plan)
    (case,) = [c for c in CASES if c.name == name]
    assert compare(case, torch.bfloat16) == []


@pytest.mark.parametrize(
    ("plan", "kept"),
    [
        (SHORT, torch.float32),
        (SHORT, torch.bfloat16),
        (HOPPER, torch.float32),
        (OLDER, torch.bfloat16),
    ],
    ids=str,
)
def test_windows_change_no_bit(plan: RowPlan, kept: torch.dtype, on_host):
    on_host(plan)
    scene = scene_of((1, 2), kept, window=7)
    x, weights = scene.rows(12), scene.weights()
    want = in_pieces(scene, x, weights, [1, 2, 5, 12], behind=64)
    for seed in range(2):
        assert same(in_windows(scene, x, weights, 11, 64, seed), want)


@pytest.mark.parametrize("plan", [HOPPER, OLDER], ids=str)
def test_rows_before_and_behind_a_chunk_are_those_of_short_calls(plan: RowPlan, on_host):
    """From position 62: two rows, a whole chunk, three rows."""
    on_host(plan)
    scene = scene_of((1, 2))
    x, weights = scene.rows(69), scene.weights()
    whole = in_pieces(scene, x, weights, [69], behind=62)
    assert same(in_pieces(scene, x, weights, [1, 2, 66, 67, 69], behind=62), whole)
    ends_with_chunk = in_pieces(scene, part_of(x, 0, 66), weights, [66], behind=62)
    assert torch.equal(ends_with_chunk[0], whole[0][:66])
    assert torch.equal(ends_with_chunk[1], x_channels(x, 63, 66))


def x_channels(x: DeltaRows, start: int, stop: int) -> Tensor:
    parts = (x.query, x.key, x.value)
    return torch.cat([part[start:stop].flatten(1) for part in parts], dim=1)


def test_a_prompt_behind_pending_rows_keeps_to_the_grid(on_host):
    """Two accepted rows at 62 and 63, then a whole chunk and a row: as if they were committed."""
    on_host(HOPPER)
    scene = scene_of((1, 2), window=2)
    x, weights = scene.rows(67), scene.weights()
    want = in_pieces(scene, x, weights, [2, 67], behind=62)
    state = scene.empty()
    head = run(part_of(x, 0, 2), weights, state, scene.ragged(64, 2, held=True))
    state[1].pending[SLOT] = 2
    tail = run(part_of(x, 2, 67), weights, state, scene.ragged(129, 65))
    assert same((torch.cat((head, tail)), state[0].inputs[SLOT], state[1].matrix[SLOT]), want)


@pytest.mark.parametrize("plan", PLANS[:3], ids=str)
def test_sequences_in_company_have_the_bits_they_have_alone(plan: RowPlan, on_host):
    """Held and not, with and without pending rows; windows of NaN behind them."""
    on_host(plan)
    scene = scene_of((1, 3), window=6)
    counts, kept, held = [3, 5, 0, 1, 6, 9], [2, 0, 4, 5, 6, 1], [1, 1, 1, 1, 1, 0]
    x, weights = scene.rows(sum(counts) + 2), scene.weights()
    together, alone = (filled(scene, kept) for _ in range(2))
    bounds = torch.tensor([0, *counts]).cumsum(0)
    slots = torch.arange(1, len(counts) + 1)
    lengths = torch.tensor(counts) + 70
    table = torch.zeros(len(counts), 1, dtype=torch.int64)
    flags = torch.tensor(held, dtype=torch.bool)
    out = run(x, weights, together, RaggedRows(bounds, lengths, table, slots, flags))
    for b, count in enumerate(counts):
        one = slice(b, b + 1)
        rows = RaggedRows(
            torch.tensor([0, count]), lengths[one], table[one], slots[one], flags[one]
        )
        start = int(bounds[b])
        got = run(part_of(x, start, start + count), weights, alone, rows)
        assert torch.equal(got, out[start : start + count])
    for got_state, want_state in zip(together, alone, strict=True):
        for field in fields(got_state):
            got, want = (getattr(s, field.name).nan_to_num() for s in (got_state, want_state))
            assert torch.equal(got, want), field.name
    assert not bool(together[1].arrivals.any())


def filled(scene: Scene, kept: list[int]) -> tuple[ConvState, DeltaState]:
    """States of random numbers with these pending rows, NaN in the rest of the windows."""
    torch.manual_seed(0)
    conv, delta = scene.empty(len(kept) + 1)
    delta.pending[1:] = torch.tensor(kept)
    conv.inputs.normal_()
    delta.matrix.normal_()
    for b, count in enumerate(kept):
        for window in (conv.window, delta.keys, delta.values, delta.decays, delta.betas):
            window[b + 1, :count] = torch.rand(window[b + 1, :count].shape) * 0.1
        delta.decays[b + 1, :count] *= -1
    return conv, delta


def test_rows_behind_the_end_of_a_window_are_dropped(on_host):
    on_host(SHORT)
    scene = scene_of((1, 2), window=2)
    x, weights = scene.rows(6), scene.weights()
    state = scene.empty(slots=3)
    run(x, weights, state, scene.ragged(70, 6, held=True))
    wide = replace(scene, window=6)
    want = wide.empty(slots=3)
    run(x, weights, want, scene.ragged(70, 6, held=True))
    for got, full in zip(state, want, strict=True):
        for field in fields(got):
            part, whole = getattr(got, field.name), getattr(full, field.name)
            if part.shape != whole.shape:
                assert torch.equal(part[SLOT], whole[SLOT, :2])
                assert part[[0, 2]].isnan().all()


def test_rows_that_are_not_the_sequences_are_not_written(on_host):
    """Behind the last sequence the output keeps what it held."""
    on_host(HOPPER)
    scene = scene_of((1, 2))
    x, weights, state = scene.rows(4), scene.weights(), scene.empty()
    out = torch.full((4, 2, 128), torch.nan, dtype=torch.bfloat16)
    host_rows(HOPPER, x, weights, *state, scene.ragged(66, 2), out, 1e-6, 0)
    assert not bool(out[:2].isnan().any()) and bool(out[2:].isnan().all())


@pytest.mark.parametrize("number", ARCHITECTURES)
def test_the_kernel_compiles_for_every_architecture(number: int):
    for heads, key_heads in ((48, 16), (32, 16)):
        made = fast.program(number, row_plan(number), heads, key_heads, halves=heads == 32)
        assert compile_program(made)[:4] == b"\x7fELF"
