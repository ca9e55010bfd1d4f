"""The Triton forms on a card: all cases, routes, rows alone bit for bit, graphs, model shapes."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.formats import quantise
from ninfer.ops import dispatch, tuning
from ninfer.ops.case import Case
from ninfer.ops.cases import ALL_CASES
from ninfer.ops.compare import compare
from ninfer.ops.tensors import StoredWeight, Weight
from ninfer.ops.tiers import PORTABLE
from ninfer.ops.tolerance import BF16
from ninfer.ops.tuning import Tile

pytestmark = pytest.mark.gpu

FORMS = (
    "Q4G64_F16S",
    "Q5G64_F16S",
    "Q6G64_F16S",
    "W8G32_F16S",
    "NVFP4",
    "FP8_E4M3FN_ROW_BF16S",
    "BF16",
)
# Sizes with one split and with several, few and many warps, one and two blocks a pass.
TILES = (
    Tile(rows=32, splits=1, warps=1, stages=3, unroll=1),
    Tile(rows=64, splits=3, warps=2, stages=3, unroll=2),
    Tile(rows=128, splits=2, warps=2, stages=4, unroll=1),
    Tile(rows=128, splits=4, warps=4, stages=3, unroll=1),
)


WITH_KERNELS = [case for case in ALL_CASES if case.op.__name__ in PORTABLE.ops]


@pytest.fixture(autouse=True)
def on_this_card() -> Iterator[None]:
    major, minor = torch.cuda.get_device_capability()
    dispatch.set_backend("triton", 10 * major + minor)
    yield
    dispatch.set_backend("reference")


def stored_weight(form: str, rows: int, columns: int) -> StoredWeight:
    values = torch.randn(rows, columns, device="cuda") * columns**-0.5
    return values.bfloat16() if form == "BF16" else quantise(values, form)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda").bfloat16()


def exact(x: Tensor, stored: StoredWeight) -> Tensor:
    with dispatch.using("reference"):
        return ops.linear(x.double(), stored)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.id)
def test_case_meets_its_criterion(case: Case, dtype: torch.dtype):
    assert compare(case, dtype, "cuda") == []


# The 16-bit matrix of these cases is bf16, of whose roundings the bound of float16 knows nothing.
ONE_TYPE = [case for case in WITH_KERNELS if case.roundings == 1]


@pytest.mark.parametrize("case", ONE_TYPE, ids=lambda case: case.id)
def test_case_meets_its_criterion_in_float16(case: Case):
    assert compare(case, torch.float16, "cuda") == []


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_row_is_the_same_for_every_number_of_rows(form: str, tile: Tile):
    weight, x = ops.resident(stored_weight(form, 384, 1536)), noise(64, 1536)
    with tuning.forcing(tile):
        together = ops.linear(x, weight)
        for count in range(1, 65):
            start = (64 - count) // 2
            part = slice(start, start + count)
            assert torch.equal(ops.linear(x[part].clone(), weight), together[part]), count


@pytest.mark.parametrize("form", FORMS)
def test_a_row_of_many_is_the_same_in_any_company(form: str):
    weight, x = ops.resident(stored_weight(form, 384, 1536)), noise(300, 1536)
    together = ops.linear(x, weight)
    for part in (slice(0, 65), slice(7, 135), slice(100, 300)):
        assert torch.equal(ops.linear(x[part].clone(), weight), together[part])


@pytest.mark.parametrize("count", [1, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 300])
@pytest.mark.parametrize("form", FORMS)
def test_borders_of_the_routes(form: str, count: int):
    stored, x = stored_weight(form, 256, 640), noise(count, 640)
    assert BF16.violation(ops.linear(x, ops.resident(stored)), exact(x, stored)) is None


def forms_of(weight: StoredWeight) -> tuple[Weight, Weight]:
    return ops.resident(weight), ops.resident(weight, paired=True)


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_every_epilogue_with_every_tile(form: str, tile: Tile):
    stored, x, residual = stored_weight(form, 256, 1024), noise(9, 1024), noise(9, 256)
    weight, paired = forms_of(stored)
    with dispatch.using("reference"):
        added = ops.linear_add(x.double(), stored, residual.double())
        gated = ops.linear_swiglu(x.double(), stored)
    with tuning.forcing(tile):
        assert BF16.violation(ops.linear_add(x, weight, residual), added) is None
        assert BF16.violation(ops.linear_swiglu(x, paired), gated) is None


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("form", FORMS)
def test_captured_and_replayed(form: str, splits: int):
    weight, x = ops.resident(stored_weight(form, 256, 1024)), noise(5, 1024)
    with tuning.forcing(Tile(rows=128, splits=splits, warps=4, stages=3, unroll=1)):
        ops.linear(x, weight)  # compiled before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = ops.linear(x, weight)
        for _ in range(3):
            x.copy_(noise(5, 1024))
            out.fill_(torch.nan)
            graph.replay()
            assert torch.equal(out, ops.linear(x, weight))


# Of the 27B and the 35B models, as stored; the head last.
SHAPES = (
    ("Q4G64_F16S", 34816, 5120),
    ("Q5G64_F16S", 5120, 17408),
    ("Q5G64_F16S", 5120, 6144),
    ("Q4G64_F16S", 7168, 5120),
    ("W8G32_F16S", 12288, 2048),
    ("BF16", 48, 5120),
    ("Q6G64_F16S", 248320, 5120),
)


@pytest.mark.parametrize(("form", "rows", "columns"), SHAPES, ids=str)
def test_shapes_of_the_models(form: str, rows: int, columns: int):
    stored = stored_weight(form, rows, columns)
    weight, x = ops.resident(stored), noise(65, columns)
    want = exact(x, stored)
    for count in (1, 16, 64, 65):
        got = ops.linear(x[:count].clone(), weight)
        assert BF16.violation(got, want[:count]) is None, count
    if form == "Q6G64_F16S":
        ids = torch.tensor([0, rows - 1, 100_003], device="cuda")
        got = ops.embed(ids, weight, dtype=torch.bfloat16)
        with dispatch.using("reference"):
            assert torch.equal(got, ops.embed(ids, stored, dtype=torch.bfloat16))


@pytest.mark.parametrize("form", FORMS[:4])
def test_re_tiling_on_the_card_is_that_of_the_processor(form: str):
    stored = stored_weight(form, 1000, 640)
    there, here = ops.resident(stored), ops.resident(stored.to("cpu"))
    assert torch.equal(there.words.cpu(), here.words)
    assert torch.equal(there.dequantise(), stored.dequantise())
