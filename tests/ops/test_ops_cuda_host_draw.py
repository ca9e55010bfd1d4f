"""The CUDA draw on the host; see test_ops_cuda_host. Needs g++."""

import ctypes
import subprocess
from functools import cache
from importlib.resources import files
from pathlib import Path
from shutil import copyfile
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.ops.sampling import reference
from ninfer.ops.sampling.cases import CASES
from ninfer.ops.sampling.fast import arguments
from ninfer.ops.sampling.fast_plan import DrawPlan
from ninfer.ops.sampling.five_launches import Rules, Settings
from ninfer.ops.tensors import DrawSettings

pytestmark = pytest.mark.soak

HOST = Path(__file__).parent / "cuda_host"
TYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}


@cache
def library(defines: tuple[tuple[str, int], ...]) -> ctypes.CDLL:
    """The kernel with these constants, with the host's machine.cuh for the card's."""
    folder = Path(mkdtemp())
    for family in ("linear", "sampling"):
        for file in files(f"ninfer.ops.{family}").joinpath("cuda").iterdir():
            copyfile(str(file), folder / file.name)
    for file in HOST.iterdir():
        copyfile(file, folder / file.name)
    flags = [f"-D{name}={value}" for name, value in defines]
    flags += ["-DHOPPER=1", "-DSOURCE=draw.cu", "-ffp-contract=off"]
    target = folder / "kernel.so"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w", *flags]
    done = subprocess.run(
        [*command, str(folder / "draw.cpp"), "-o", str(target)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(target))


def drawn(
    logits: Tensor,
    limit: int,
    settings: Settings,
    rules: Rules | None = None,
    *,
    cluster: int = 2,
    listed: int = 1024,
) -> Tensor:
    rows, chunk = logits.shape[0], -(-limit // (cluster * 32)) * 32
    plan = DrawPlan(cluster, chunk, listed, TYPES[logits.dtype], warps=2)
    logits = logits.contiguous()
    planes, sizes = arguments(logits, limit, settings, rules or Rules(), plan)
    out = torch.full((rows,), -7)
    addresses = [None if plane is None else plane.data_ptr() for plane in (*planes, out)]
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    numbers = (ctypes.c_int * len(sizes))(*sizes)
    grid = (rows * cluster, plan.threads, plan.shared_bytes, cluster, ctypes.c_uint64(rows))
    library(tuple(sorted(plan.defines.items()))).run(*grid, pointers, numbers)
    return out


def sample(
    logits: Tensor, *, limit: int, sizes: dict[str, int] | None = None, **own: Any
) -> Tensor:
    return drawn(logits, limit, Settings(**own), **sizes or {})


def next_tokens(logits: Tensor, draws: DrawSettings, *, limit: int, **rules: Any) -> Tensor:
    cuts = (draws.temperature, draws.top_k, draws.top_p, draws.min_p)
    settings = Settings(*cuts, None, draws.seeds, draws.positions, draws.purposes)
    return drawn(logits, limit, settings, Rules(**rules))


OWN = [case for case in CASES if case.op.__name__ in {"sample", "next_tokens"}]


# Two lists: one that holds what decides, and one that hardly ever does.
SIZES = ({"listed": 1024}, {"listed": 64}, {"cluster": 4, "listed": 512})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", OWN, ids=lambda case: case.id)
def test_cases_of_the_ops(case, dtype):
    call = case.make(dtype)
    name = case.op.__name__
    mine = {"sample": sample, "next_tokens": next_tokens}[name]
    want = getattr(reference, name)(**call.arguments)
    assert torch.equal(mine(**call.arguments), want)


def settings(rows: int, **cuts: Any) -> dict[str, Tensor]:
    floats = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0} | cuts
    keep = floats.pop("top_k", 0)
    own = {n: torch.full((rows,), v, dtype=torch.float64) for n, v in floats.items()}
    return own | {"top_k": torch.full((rows,), keep), "u": torch.rand(rows, dtype=torch.float64)}


def mixed(rows: int) -> dict[str, Tensor]:
    """Cuts of all kinds, some off, in every mix."""
    pick = torch.randint(0, 4, (4, rows))
    return {
        "temperature": torch.tensor([0.0, 0.3, 1.0, 2.5]).double()[pick[0]],
        "top_k": torch.tensor([0, 1, 20, 700])[pick[1]],
        "top_p": torch.tensor([1.0, 0.0, 0.5, 0.97]).double()[pick[2]],
        "min_p": torch.tensor([0.0, 0.02, 0.3, 1.5]).double()[pick[3]],
        "u": torch.rand(rows, dtype=torch.float64),
    }


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("spread", [0.02, 1.0, 8.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_draws_equal_the_reference(dtype, spread: float, sizes: dict[str, int]):
    torch.manual_seed(1)
    logits = (torch.randn(24, 1500) * spread).to(dtype)
    own = mixed(24)
    got = sample(logits, limit=1490, sizes=sizes, **own)
    assert torch.equal(got, reference.sample(logits, limit=1490, **own))


@pytest.mark.parametrize("sizes", SIZES)
def test_ties_and_masked_logits(sizes: dict[str, int]):
    torch.manual_seed(2)
    logits = (torch.randn(24, 900) * 3).round()
    logits[:, ::3] = -torch.inf
    logits[3:6] = 1.0
    logits[4, 7:] = -torch.inf
    logits[6:12] = 0.0
    logits[7, ::2] = -0.0
    own = mixed(24)
    got = sample(logits, limit=890, sizes=sizes, **own)
    assert torch.equal(got, reference.sample(logits, limit=890, **own))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("limit", [1, 2, 31, 63, 64, 65, 129, 700])
def test_few_ids_and_borders_of_the_blocks(limit: int, sizes: dict[str, int]):
    logits = torch.arange(700.0).repeat(6, 1) / 8
    own = settings(6, top_k=2)
    own["temperature"][0], own["top_k"][5] = 0, 0
    got = sample(logits, limit=limit, sizes=sizes, **own)
    assert torch.equal(got, reference.sample(logits, limit=limit, **own))
    assert int(got[0]) == limit - 1


def test_rows_that_cannot_be_used_give_no_token():
    logits = torch.randn(5, 300)
    logits[0, 299], logits[1, 5], logits[2] = torch.nan, torch.inf, -torch.inf
    logits[3, 17], logits[4, :299] = -torch.inf, -torch.inf
    for cuts in ({}, {"temperature": 0.0}, {"top_k": 3}):
        got = sample(logits, limit=300, **settings(5, **cuts))
        assert got[:3].tolist() == [-1, -1, -1] and got[3] >= 0 and got[4] == 299


def test_a_greedy_row_takes_the_best_in_any_dtype_and_a_shortest_temperature():
    logits = torch.randn(8, 1000).bfloat16()
    own = settings(8)
    own["temperature"] = torch.tensor([0.0, -1.0, 1e-320, 1e-45, 1e-9, 0.0, 0.0, 1e-30]).double()
    got = sample(logits, limit=1000, **own)
    assert torch.equal(got, ops.argmax(logits, 1000))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("keep", [1, 3, 20])
def test_the_top_k_of_equal_logits_are_the_first_ids(keep: int, sizes: dict[str, int]):
    logits, own = torch.zeros(8, 128), settings(8, top_k=keep)
    own["u"] = torch.linspace(0.05, 0.999, 8, dtype=torch.float64)
    got = sample(logits, limit=128, sizes=sizes, **own)
    assert torch.equal(got, reference.sample(logits, limit=128, **own))
    assert int(got[-1]) == keep - 1
