"""Triton forms of the products and the lookup, interpreted: values, routes, splits, refusals."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import UnsupportedError
from ninfer.formats import GroupedMatrix, quantise
from ninfer.ops import dispatch, tuning
from ninfer.ops.case import Case
from ninfer.ops.cases import ALL_CASES
from ninfer.ops.compare import compare
from ninfer.ops.linear import reference
from ninfer.ops.linear.fragment_order import to_fragments
from ninfer.ops.tiers import PORTABLE
from ninfer.ops.tuning import Tile

# Triton 3.6's interpreter makes scalars of arrays for every range with a run-time bound.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

# Made for row blocks of the reference form or for real sizes; here they cost interpreted minutes.
LARGE = (
    "linear-blocks_bf16",
    "linear-blocks_nvfp4",
    "causal_conv_silu-shorter_than_window",
    "delta_net-decode_27b",
    "delta_net-decode_35b",
    "delta_net-held_27b",
)
CASES = [c for c in ALL_CASES if c.op.__name__ in PORTABLE.ops and c.id not in LARGE]
GROUPED = ("Q4G64_F16S", "Q5G64_F16S", "Q6G64_F16S", "W8G32_F16S")
ROW_MAJOR = ("BF16", "FP8_E4M3FN_ROW_BF16S", "NVFP4")


@pytest.fixture(autouse=True)
def portable() -> Iterator[None]:
    with dispatch.using("portable", only=PORTABLE.ops):
        yield


def weight_of(form: str, rows: int, columns: int) -> Tensor | GroupedMatrix:
    values = torch.randn(128 if form == "NVFP4" else rows, columns) * columns**-0.5
    return values.bfloat16() if form == "BF16" else quantise(values, form)


def error(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case_meets_its_criterion(case: Case):
    assert compare(case, torch.float32) == []


@pytest.mark.parametrize(
    "name", ["linear-rows_17", "linear-fp8_e4m3fn_row_bf16s", "linear_swiglu-q4", "embed-dense_65"]
)
def test_bf16_is_rounded_once(name: str):
    (case,) = [case for case in CASES if case.id == name]
    assert compare(case, torch.bfloat16) == []


# One to the left and to the right of each token tile, and of the few-token route.
@pytest.mark.parametrize("count", [1, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129])
@pytest.mark.parametrize("form", ["Q4G64_F16S", "BF16"])
def test_borders_of_the_routes(form: str, count: int):
    stored, x = weight_of(form, 40, 64), torch.randn(count, 64)
    got = ops.linear(x, ops.resident(stored))
    assert got.shape == (count, 40)
    assert error(got, reference.linear(x.double(), stored)) < 1e-6


@pytest.mark.parametrize("form", [*GROUPED, *ROW_MAJOR])
def test_a_row_is_the_same_alone_and_in_company(form: str):
    """Up to 16 rows, where the interpreter's library sees products of one size."""
    weight, x = ops.resident(weight_of(form, 32, 128)), torch.randn(16, 128)
    together = ops.linear(x, weight)
    for rows in (slice(0, 1), slice(3, 5), slice(7, 16)):
        assert torch.equal(ops.linear(x[rows].clone(), weight), together[rows])


@pytest.mark.parametrize("count", [1, 16, 17, 33, 64, 65])
def test_exact_sums_are_the_same_on_every_route(count: int):
    """Small whole numbers leave nothing to round: any misplaced column, row or scale shows."""
    matrix = torch.randint(-7, 8, (33, 192)).float()
    matrix[:, ::64] = 7  # so that every scale is 1 and every code the number itself
    x = torch.randint(-3, 4, (count, 192)).float()
    stored = quantise(matrix, "Q4G64_F16S")
    assert torch.equal(stored.dequantise(), matrix)
    assert torch.equal(ops.linear(x, ops.resident(stored)), x @ matrix.T)


@pytest.fixture
def split_in_three() -> Iterator[None]:
    with tuning.forcing(Tile(rows=32, splits=3, warps=1, stages=1, unroll=2)):
        yield


@pytest.mark.usefixtures("split_in_three")
@pytest.mark.parametrize("form", ["Q5G64_F16S", "W8G32_F16S", *ROW_MAJOR])
def test_splits_are_added_in_order(form: str):
    """Ten blocks in passes of two are two shares of four and one of two."""
    stored, x = weight_of(form, 32, 640), torch.randn(3, 640)
    residual = torch.randn(3, stored.shape[0])
    weight, paired = ops.resident(stored), ops.resident(stored, paired=True)
    want = reference.linear_add(x.double(), stored, residual.double())
    assert error(ops.linear_add(x, weight, residual), want) < 1e-6
    want = reference.linear_swiglu(x.double(), stored)
    assert error(ops.linear_swiglu(x, paired), want) < 1e-6
    # The middle columns alone are the middle split alone.
    middle = torch.zeros_like(x)
    middle[:, 256:512] = x[:, 256:512]
    assert error(ops.linear(middle, weight), reference.linear(middle.double(), stored)) < 1e-6


@pytest.mark.parametrize("slice_groups", [2, 8], ids=["last_cut_short", "longer_than_the_row"])
@pytest.mark.parametrize("form", GROUPED)
def test_slices_of_the_fast_tier_are_read(form: str, slice_groups: int):
    stored, x, ids = weight_of(form, 48, 320), torch.randn(2, 320), torch.tensor([47, 0, 9])
    sliced = to_fragments(stored, slice_groups)
    assert sliced.slices == (3 if slice_groups == 2 else 1)
    assert error(ops.linear(x, sliced), reference.linear(x.double(), stored)) < 1e-6
    got = ops.embed(ids, sliced, dtype=torch.float32)
    assert torch.equal(got, stored.dequantise()[ids])


@pytest.mark.parametrize("form", GROUPED)
def test_a_paired_matrix_serves_plain_products(form: str):
    stored, x = weight_of(form, 52, 128), torch.randn(2, 128)
    paired = ops.resident(stored, paired=True)
    assert error(ops.linear(x, paired), reference.linear(x.double(), stored)) < 1e-6
    assert error(ops.linear_swiglu(x, paired), reference.linear_swiglu(x.double(), stored)) < 1e-6


@pytest.mark.parametrize("form", ["Q4G64_F16S", "BF16"])
def test_columns_beyond_the_activations_are_not_read(form: str):
    wide = torch.full((3, 200), torch.nan)
    wide[:, 40:130] = torch.randn(3, 90)
    stored, x = weight_of(form, 20, 90), wide[:, 40:130]
    got = ops.linear(x, ops.resident(stored))
    assert error(got, reference.linear(x.double(), stored)) < 1e-6


@pytest.mark.parametrize("form", GROUPED)
def test_re_tiling_keeps_bytes_and_can_be_undone(form: str):
    stored = weight_of(form, 96, 256)
    weight = ops.resident(stored)
    assert weight.nbytes == stored.nbytes
    assert torch.equal(weight.dequantise(), stored.dequantise())
    for start, stop in ((0, 96), (16, 48), (80, 96), (5, 37), (90, 96)):
        part = weight.rows(start, stop)
        assert part.shape == (stop - start, 256)
        assert torch.equal(part.dequantise(), stored.rows(start, stop).dequantise())
    assert weight.rows(16, 48).words.data_ptr() == weight.words[1].data_ptr()
    paired = ops.resident(stored, paired=True).rows(40, 60)
    assert torch.equal(paired.dequantise(), stored.rows(40, 60).dequantise())


def test_what_has_no_kernel_is_refused_by_name():
    stored, x = weight_of("Q4G64_F16S", 32, 64), torch.randn(2, 64)
    with pytest.raises(UnsupportedError, match="linear: Q4G64_F16S comes in its stored planes"):
        ops.linear(x, stored)
    with pytest.raises(UnsupportedError, match=r"linear: no Triton kernel for .*float64"):
        ops.linear(x.double(), ops.resident(stored))
    with pytest.raises(UnsupportedError, match="pair them at load"):
        ops.linear_swiglu(x, ops.resident(stored))
    with pytest.raises(UnsupportedError, match=r"strides \(1, 32\)"):
        ops.linear(x, torch.randn(64, 32).t())
    ids = torch.tensor([1])
    with pytest.raises(UnsupportedError, match="embed: the table has paired rows"):
        ops.embed(ids, ops.resident(stored, paired=True), dtype=torch.float32)
    with pytest.raises(UnsupportedError, match="embed: no Triton kernel for a table in Q4G64"):
        ops.embed(ids, stored, dtype=torch.float32)
    with pytest.raises(ValueError, match="NVFP4 cannot be read by row"):
        ops.embed(ids, weight_of("NVFP4", 128, 64), dtype=torch.float32)
