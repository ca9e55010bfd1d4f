"""The CUDA kernels on the host: every thread a fiber, copies late, order random, addresses checked.

Proves index maps, barriers, sums and epilogues of the sources that a card runs; needs g++.
"""

import ctypes
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from shutil import copyfile
from tempfile import mkdtemp

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ninfer.formats import quantise
from ninfer.ops.linear.fast_plan import Split, StreamPlan
from ninfer.ops.linear.fragment_order import FORMATS, FragmentMatrix, groups_of, to_fragments
from ninfer.ops.linear.wide_plan import WarpgroupPlan, WidePlan
from ninfer.ops.tolerance import BF16

pytestmark = pytest.mark.e2e

HOST = Path(__file__).parent / "cuda_host"


class Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


@cache
def library(source: str, hopper: bool, defines: tuple[tuple[str, int], ...]) -> ctypes.CDLL:
    """The kernel of a source with these constants, with the host's machine.cuh for the card's."""
    folder = Path(mkdtemp())
    for file in files("ninfer.ops.linear").joinpath("cuda").iterdir():
        copyfile(str(file), folder / file.name)
    for file in HOST.iterdir():
        copyfile(file, folder / file.name)
    flags = [f"-D{name}={value}" for name, value in defines]
    flags += [f"-DHOPPER={int(hopper)}", f"-DSOURCE={source}", "-DWARPGROUPS=1"]
    flags.append(f"-D{source.removesuffix('.cu').upper()}")
    target = folder / "kernel.so"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w", *flags]
    done = subprocess.run(
        [*command, str(folder / "run.cpp"), "-o", str(target)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(target))


@dataclass
class Product:
    """One product: what goes in, poisoned outputs, and the float64 reference."""

    form: str
    rows: int
    columns: int
    tokens: int
    ending: str = "store"
    paired: bool = False

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.rows + self.columns)
        values = torch.randn(self.rows, self.columns, generator=generator) * self.columns**-0.5
        self.matrix = quantise(values, self.form)
        whole = torch.randn(64, self.columns, generator=generator).bfloat16()
        padded = functional.pad(whole, (0, -self.columns % 8))
        self.x = padded[: self.tokens].contiguous()
        residual = torch.randn(64, self.rows, generator=generator).bfloat16()
        self.residual = residual[: self.tokens].contiguous() if self.ending == "add" else None
        width = self.rows // 2 if self.ending == "swiglu" else self.rows
        self.y = torch.full((self.tokens, width), float("nan"), dtype=torch.bfloat16)

    def expected(self) -> Tensor:
        x = self.x[:, : self.columns].double()
        found = x @ self.matrix.dequantise(torch.float64).T
        if self.residual is not None:
            found = found + self.residual.double()
        if self.ending == "swiglu":
            gate, up = found.chunk(2, -1)
            found = functional.silu(gate) * up
        return found

    def check(self) -> None:
        assert BF16.violation(self.y, self.expected()) is None

    def run(
        self,
        kernel: ctypes.CDLL,
        tiled: FragmentMatrix,
        grid: tuple[int, int, int, int],
        partial_bytes: int,
        counters: int,
        tail: list[int],
        image: Tensor | None = None,
    ) -> None:
        """Launch with `grid` = blocks, threads, shared bytes and cluster size.

        A kernel that reads an arranged `image` in place of x has no use for x's stride and columns.
        """
        partial = torch.full((partial_bytes // 4 + 4,), float("nan"))
        arrivals = torch.zeros(counters, dtype=torch.int32)
        x = self.x if image is None else image
        known = [tiled.words, x, partial, arrivals]
        buffers = (Buffer * 4)(*(Buffer(each.data_ptr(), each.nbytes) for each in known))
        residual = None if self.residual is None else self.residual.data_ptr()
        pointers = [tiled.words.data_ptr(), x.data_ptr(), self.y.data_ptr(), residual]
        pointers += [partial.data_ptr(), arrivals.data_ptr()]
        sizes = [self.x.stride(0), self.tokens, self.rows, self.columns]
        if image is not None:
            sizes = [self.tokens, self.rows]
        ends = [int(self.paired), int(self.ending == "swiglu")]
        kernel.run(
            *grid,
            ctypes.c_uint64(self.tokens),
            buffers,
            len(known),
            *map(ctypes.c_void_p, pointers),
            *sizes,
            *tail,
            *ends,
        )
        assert not arrivals.any(), "counters must end as zeros"


def stream(product: Product, plan: StreamPlan, hopper: bool, clustered: bool, count: int) -> Tensor:
    """The product by linear_stream with `count` tiles a block."""
    kernel = library("stream.cu", hopper, tuple(plan.defines.items()))
    tiled = to_fragments(product.matrix, plan.split.slice_groups, paired=product.paired)
    slices = plan.split.slices
    assert tiled.slices == slices
    shared = plan.shared_bytes + (count * plan.tile_sum if clustered else 0)
    blocks = -(-tiled.tiles // count) * slices
    grid = (blocks, plan.threads, shared, slices if clustered else 1)
    partial = tiled.tiles * slices * plan.tile_sum if slices > 1 and not clustered else 0
    product.run(kernel, tiled, grid, partial, tiled.tiles, [tiled.tiles, count, int(clustered)])
    product.check()
    return product.y


def wide(product: Product, plan: WidePlan, slice_groups: int, blocks: int) -> Tensor:
    """The product by linear_wide on that many blocks, or one fewer."""
    kernel = library("wide.cu", False, tuple(plan.defines.items()))
    tiled = to_fragments(product.matrix, slice_groups, paired=product.paired)
    groups = groups_of(product.columns)
    row_blocks = -(-tiled.tiles // plan.block_tiles)
    run = -(-row_blocks * groups // blocks)
    blocks = -(-row_blocks * groups // run)
    grid = (blocks, plan.threads, plan.shared_bytes, 1)
    tail = [tiled.tiles, tiled.slices, slice_groups, groups, run]
    product.run(kernel, tiled, grid, blocks * 2 * plan.block_sum, row_blocks, tail)
    product.check()
    return product.y


def arranged(product: Product, plan: WarpgroupPlan, units: int) -> Tensor:
    """The activations by arrange_activations, in a buffer full of NaN."""
    kernel = library("arrange.cu", True, (("TOKENS", plan.tokens),))
    image = torch.full((units * plan.unit_bytes,), 0xFF, dtype=torch.uint8)
    x = product.x
    sizes = (x.stride(0), product.tokens, product.columns, units * plan.stage_groups)
    buffer, target = Buffer(x.data_ptr(), x.nbytes), ctypes.c_void_p(image.data_ptr())
    kernel.run(-(-image.nbytes // (16 * 256)), 256, buffer, target, *sizes)
    return image


def warpgroups(product: Product, plan: WarpgroupPlan, slice_groups: int, blocks: int) -> Tensor:
    """The product by arrange_activations and linear_warpgroup on that many blocks, or fewer."""
    kernel = library("warpgroup.cu", True, tuple(plan.defines.items()))
    tiled = to_fragments(product.matrix, slice_groups, paired=product.paired)
    units = -(-groups_of(product.columns) // plan.stage_groups)
    row_blocks = -(-tiled.tiles // plan.block_tiles)
    run = -(-row_blocks * units // blocks)
    blocks = -(-row_blocks * units // run)
    grid = (blocks, plan.threads, plan.shared_bytes, 1)
    tail = [tiled.tiles, tiled.slices, slice_groups, units, run]
    partial, image = blocks * 2 * plan.block_sum, arranged(product, plan, units)
    product.run(kernel, tiled, grid, partial, row_blocks, tail, image)
    product.check()
    return product.y


def plan_of(form: str, tiles: int, **changes: int) -> StreamPlan:
    bits = int(form[1])
    sizes = {"stages": 3, "reducers": 2, "ahead": 1} | changes
    return StreamPlan(bits, Split(2, 2, 2), token_tiles=tiles, **sizes)


@pytest.mark.parametrize(("hopper", "clustered"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("form", FORMATS)
def test_few_tokens(form, hopper, clustered):
    stream(Product(form, 100, 488, 3), plan_of(form, 1), hopper, clustered, 3)
    product = Product(form, 100, 484, 13, "add")
    stream(product, plan_of(form, 2), hopper, clustered, 3)


@pytest.mark.parametrize(("hopper", "clustered"), [(False, False), (True, True)])
def test_gated_and_paired_rows(hopper, clustered):
    form = FORMATS[0]
    for ending in ("swiglu", "store", "add"):
        product = Product(form, 88, 512, 11, ending, paired=True)
        stream(product, plan_of(form, 2), hopper, clustered, 4)
        product = Product(form, 88, 512, 40, ending, paired=True)
        wide(product, WidePlan(4, 2, 3, 8), 4, 3)
        product = Product(form, 88, 512, 40, ending, paired=True)
        warpgroups(product, WarpgroupPlan(4, 1, 2, 3, 2, 8), 4, 3)


@pytest.mark.parametrize("hopper", [False, True])
@pytest.mark.parametrize(
    ("split", "stages", "reducers", "ahead"),
    [
        (Split(8, 1, 1), 2, 4, 2),
        (Split(4, 2, 1), 6, 1, 2),
        (Split(1, 1, 8), 3, 1, 0),
        (Split(2, 1, 4), 4, 4, 4),
        (Split(3, 3, 1), 3, 3, 1),
    ],
)
def test_every_shape_of_ring_and_split(split, stages, reducers, ahead, hopper):
    plan = StreamPlan(5, split, stages, reducers, 1, ahead)
    for count in (5, 12):
        stream(Product("Q5G64_F16S", 192, 512, 3), plan, hopper, False, count)
        if hopper and split.slices > 1:
            stream(Product("Q5G64_F16S", 192, 512, 3), plan, True, True, count)


@pytest.mark.parametrize("hopper", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_rows_do_not_depend_on_the_number_of_tokens(form, hopper):
    whole = stream(Product(form, 64, 512, 16), plan_of(form, 2), hopper, False, 4)
    for tokens, tiles in ((1, 1), (9, 2)):
        product = Product(form, 64, 512, tokens)
        # Nor on the ring, the cluster and how tiles are shared out.
        plan = plan_of(form, tiles, stages=2, reducers=4)
        part = stream(product, plan, hopper, hopper and tokens > 1, 1)
        assert torch.equal(part.view(torch.int16), whole[:tokens].view(torch.int16))


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 7, 16])
def test_many_tokens_with_row_blocks_cut_anywhere(blocks):
    form = FORMATS[0]
    whole = wide(Product(form, 200, 488, 64), WidePlan(4, 2, 3, 8), 3, blocks)
    for tokens, tiles, stages in ((17, 4, 4), (32, 4, 3), (33, 8, 3)):
        plan = WidePlan(4, 2, stages, tiles)
        part = wide(Product(form, 200, 488, tokens), plan, 3, blocks)
        assert torch.equal(part.view(torch.int16), whole[:tokens].view(torch.int16))


@pytest.mark.parametrize("form", FORMATS)
def test_many_tokens_in_each_format(form):
    bits = int(form[1])
    wide(Product(form, 96, 330, 29, "add"), WidePlan(bits, 2, 3, 4), 2, 4)
    wide(Product(form, 130, 320, 64), WidePlan(bits, 4, 4, 8), 5, 2)


@pytest.mark.parametrize("form", FORMATS)
def test_products_of_warpgroups_in_each_format(form):
    bits = int(form[1])
    # Two and one subtiles, stages that end a slice and that do not, a ragged last group.
    warpgroups(Product(form, 200, 330, 29, "add"), WarpgroupPlan(bits, 1, 2, 3, 1, 4), 3, 3)
    warpgroups(Product(form, 140, 512, 64), WarpgroupPlan(bits, 2, 1, 3, 2, 8), 4, 2)
    warpgroups(Product(form, 300, 488, 50), WarpgroupPlan(bits, 1, 2, 2, 4, 8), 8, 2)
    warpgroups(Product(form, 64, 256, 16), WarpgroupPlan(bits, 1, 1, 2, 2, 2), 2, 1)


@pytest.mark.parametrize("blocks", [1, 3, 5, 8])
def test_products_of_warpgroups_with_row_blocks_cut_anywhere(blocks):
    form = FORMATS[0]
    whole = warpgroups(Product(form, 330, 500, 64), WarpgroupPlan(4, 1, 2, 3, 2, 8), 4, blocks)
    for tokens, tiles, stages in ((17, 4, 4), (32, 4, 2), (33, 8, 8)):
        plan = WarpgroupPlan(4, 1, 2, stages, 2, tiles)
        part = warpgroups(Product(form, 330, 500, tokens), plan, 4, blocks)
        assert torch.equal(part.view(torch.int16), whole[:tokens].view(torch.int16))


def test_products_of_warpgroups_give_the_bits_of_those_of_warps():
    """Both sum a group and then scale it, so the same cuts give the same sums."""
    for form in FORMATS:
        bits = int(form[1])
        plan = WarpgroupPlan(bits, 1, 1, 3, 2, 8)
        found = warpgroups(Product(form, 128, 512, 40), plan, 4, 1)
        other = wide(Product(form, 128, 512, 40), WidePlan(bits, 2, 3, 8), 4, 1)
        assert torch.equal(found.view(torch.int16), other.view(torch.int16))
