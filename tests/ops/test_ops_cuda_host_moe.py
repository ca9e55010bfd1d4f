"""The CUDA kernels of the experts on the host; see test_ops_cuda_host. Needs g++."""

import ctypes
import subprocess
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from shutil import copyfile
from tempfile import mkdtemp

import pytest
import torch
from torch import Tensor

from ninfer.formats import quantise
from ninfer.ops.linear.fragment_order import groups_of, to_fragments
from ninfer.ops.moe import reference
from ninfer.ops.moe.fast import Plan
from ninfer.ops.moe.fast_plan import (
    DownPlan,
    GateUpPlan,
    Layer,
    Lists,
    down_plan,
    gate_up_plan,
    router_plan,
)
from ninfer.ops.tensors import ExpertWeights, SharedExpert
from ninfer.ops.tolerance import BF16

pytestmark = pytest.mark.soak

HOST = Path(__file__).parent / "cuda_host"
FORMS = {4: "Q4G64_F16S", 5: "Q5G64_F16S", 6: "Q6G64_F16S", 8: "W8G32_F16S"}


class Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


@cache
def library(source: str, defines: tuple[tuple[str, int], ...]) -> ctypes.CDLL:
    """The kernel of a source with these constants, with the host's machine.cuh for the card's."""
    folder = Path(mkdtemp())
    for family in ("linear", "moe"):
        for file in files(f"ninfer.ops.{family}").joinpath("cuda").iterdir():
            copyfile(str(file), folder / file.name)
    for file in HOST.iterdir():
        copyfile(file, folder / file.name)
    flags = [f"-D{name}={value}" for name, value in defines]
    flags += ["-DHOPPER=1", f"-DSOURCE={source}", f"-D{source.removesuffix('.cu').upper()}"]
    target = folder / "kernel.so"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w", *flags]
    done = subprocess.run(
        [*command, str(folder / "moe.cpp"), "-o", str(target)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(target))


def run(source: str, plan: Plan, blocks: int, tensors: list[Tensor], sizes: list[int], seed: int):
    kernel = library(source, tuple(sorted(plan.defines.items())))
    buffers = (Buffer * len(tensors))(*(Buffer(t.data_ptr(), t.nbytes) for t in tensors))
    addresses = (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
    numbers = (ctypes.c_int * len(sizes))(*sizes)
    grid = (blocks, plan.threads, plan.shared_bytes, ctypes.c_uint64(seed))
    kernel.run(*grid, buffers, len(tensors), addresses, numbers)


def poisoned(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.full(shape, float("nan"), dtype=dtype)


@dataclass
class Scene:
    """A layer with random weights and rows; its passes write into poisoned memory."""

    layer: Layer
    tokens: int

    def __post_init__(self) -> None:
        size = self.layer
        generator = torch.Generator().manual_seed(size.experts)

        def matrix(bits: int, rows: int, columns: int):
            values = torch.randn(rows, columns, generator=generator) * columns**-0.5
            return quantise(values, FORMS[bits])

        routed, shared = size.gate_up_bits
        gate_up = matrix(routed, size.experts * 2 * size.inner, size.dim)
        shared_gate_up = matrix(shared, 2 * size.shared_inner, size.dim)
        routed, shared = size.down_bits
        down = matrix(routed, size.experts * size.dim, size.inner)
        shared_down = matrix(shared, size.dim, size.shared_inner)
        self.stored = (
            ExpertWeights(gate_up, down, size.experts),
            SharedExpert(shared_gate_up, shared_down),
        )
        self.held = [
            to_fragments(m, groups_of(m.shape[1])).words
            for m in (gate_up, shared_gate_up, down, shared_down)
        ]
        rows = torch.randn(64, size.dim, generator=generator).bfloat16()
        self.x = rows[: self.tokens].contiguous()
        order = [torch.randperm(size.experts, generator=generator) for _ in range(64)]
        self.ids = torch.stack(order)[: self.tokens, : size.top_k].contiguous()
        weights = torch.rand(64, size.top_k, generator=generator)
        self.weights = weights[: self.tokens].contiguous()
        self.score = torch.randn(64, 1, generator=generator)[: self.tokens].contiguous()

    def result(self, plans: tuple[GateUpPlan, DownPlan], blocks: int) -> Tensor:
        """The rows by both kernels, checked against float64."""
        size, count = self.layer, self.tokens
        first, second = plans
        act, shared_act = (
            poisoned(count * size.top_k, size.inner),
            poisoned(count, size.shared_inner),
        )
        tensors = [*self.held[:2], self.x, self.ids, act, shared_act]
        sizes = [self.x.stride(0), count, size.top_k, size.inner, size.shared_inner]
        sizes += [first.shared_blocks, blocks]
        run("gate_up.cu", first, blocks, tensors, sizes, count)
        assert not act.isnan().any()
        assert not shared_act.isnan().any()
        y = poisoned(count, size.dim)
        blocks = min(blocks, size.dim // 16)
        factors = [self.weights, self.score]
        tensors = [*self.held[2:], act, shared_act, self.ids, *factors, y]
        run("down.cu", second, blocks, tensors, [count, size.top_k, size.dim, blocks], count)
        wide = (self.x.double(), self.weights.double(), self.ids)
        exact = reference.sparse_moe(*wide, *self.stored, self.score.double())
        assert BF16.violation(y, exact) is None
        return y

    def by_table(self, blocks: int = 5) -> Tensor:
        plans = (
            gate_up_plan(self.layer, self.tokens, blocks),
            down_plan(90, self.layer, self.tokens),
        )
        return self.result(plans, blocks)


SMALL = Layer(
    experts=10, top_k=3, dim=128, inner=64, shared_inner=64, gate_up_bits=(4, 8), down_bits=(5, 8)
)


@pytest.mark.parametrize("tokens", [1, 2, 8, 9, 21])
def test_few_and_many_tokens(tokens: int):
    Scene(SMALL, tokens).by_table()


@pytest.mark.parametrize(("first", "second"), [((8, 8), (8, 8)), ((4, 8), (6, 8))])
@pytest.mark.parametrize("tokens", [3, 12])
def test_every_stored_form(first: tuple[int, int], second: tuple[int, int], tokens: int):
    layer = replace(SMALL, gate_up_bits=first, down_bits=second, inner=128, experts=7)
    Scene(layer, tokens).by_table(blocks=3)


def test_widths_of_their_own_and_more_tiles_than_blocks():
    layer = replace(SMALL, dim=512, inner=128, shared_inner=64, top_k=1)
    for tokens in (2, 11):
        scene = Scene(layer, tokens)
        scene.by_table(blocks=4)
        scene.by_table(blocks=40)


def test_all_rows_on_the_same_experts():
    scene = Scene(SMALL, 64)
    scene.ids = scene.ids[:1].expand(64, -1).contiguous()
    scene.x = scene.x[:1].expand(64, -1).contiguous()
    scene.weights = scene.weights[:1].expand(64, -1).contiguous()
    scene.score = scene.score[:1].expand(64, -1).contiguous()
    y = scene.by_table()
    assert torch.equal(y, y[:1].expand(64, -1))


def test_rows_depend_on_neither_company_nor_sizes():
    whole = Scene(SMALL, 64).by_table(blocks=6)
    for tokens in (1, 7, 8, 9, 40):
        assert torch.equal(Scene(SMALL, tokens).by_table(blocks=3), whole[:tokens])
    lists = Lists.of(5, SMALL.top_k, SMALL.experts)
    split = gate_up_plan(SMALL, 5, 4).split
    for ring, reducers, blocks, warps, stages in ((4480, 1, 1, 1, 3), (20480, 4, 3, 5, 1)):
        first = GateUpPlan(SMALL.gate_up_bits, split, lists, blocks, ring, reducers, 1)
        second = DownPlan(SMALL.down_bits, (1, 1), lists, warps, stages)
        assert torch.equal(Scene(SMALL, 5).result((first, second), 7), whole[:5])


@pytest.mark.parametrize(("experts", "columns", "top_k"), [(40, 320, 8), (7, 1096, 3), (64, 64, 1)])
def test_routing(experts: int, columns: int, top_k: int):
    generator = torch.Generator().manual_seed(experts)
    router = (torch.randn(experts + 1, columns, generator=generator) * columns**-0.5).bfloat16()
    whole = torch.randn(64, columns, generator=generator).bfloat16()
    # Two experts that tie for every row.
    router[experts - 1] = router[0]
    plan, kept = router_plan(columns, experts), None
    for tokens in (33, 1, 8):
        x = whole[:tokens].contiguous()
        weights, score = (poisoned(tokens, n, dtype=torch.float32) for n in (top_k, 1))
        logits = poisoned(tokens, experts + 1, dtype=torch.float32)
        ids = torch.full((tokens, top_k), -1)
        arrivals = torch.zeros(8, dtype=torch.int32)
        tensors = [router, x, logits, arrivals, weights, ids, score]
        blocks = -(-(experts + 1) // 16) * -(-tokens // 8)
        run("router.cu", plan, blocks, tensors, [columns, tokens, experts + 1, columns, top_k], 3)
        assert not arrivals.any(), "counters must end as zeros"
        exact = x.double() @ router.double().T
        assert torch.allclose(logits.double(), exact, atol=1e-5)
        want = reference.route_topk(logits[:, :-1], top_k)
        assert torch.equal(ids, want[1])
        assert torch.allclose(weights, want[0], atol=1e-6)
        assert torch.equal(score, logits[:, -1:])
        if kept is not None:
            assert all(
                torch.equal(a, b[:tokens]) for a, b in zip((weights, ids), kept, strict=True)
            )
        kept = kept or (weights, ids)
