"""The CUDA products on a card: the ops' cases, borders of each route, capture, bits of rows."""

import pytest
import torch

from ninfer.errors import UnsupportedError
from ninfer.formats import quantise
from ninfer.ops.linear import fast, reference
from ninfer.ops.linear.fragment_order import FORMATS, FragmentMatrix, to_fragments
from ninfer.ops.tolerance import BF16

pytestmark = pytest.mark.gpu

# Columns with a measured split, with the general one, and with a ragged end.
SHAPES = ((4096, 5120), (1024, 17408), (784, 6144), (400, 2048), (256, 640), (130, 330))
# The borders of token tiles, of both kernels and of a launch.
COUNTS = (1, 8, 9, 16, 17, 32, 33, 64, 65, 130)


def weight_of(form: str, rows: int, columns: int, *, paired: bool = False):
    values = torch.randn(rows, columns, device="cuda") * columns**-0.5
    stored = quantise(values, form)
    groups = fast.slice_groups(stored.device, form, columns)
    tiled = to_fragments(stored, groups, paired=paired)
    fast.ready(tiled)
    return stored, tiled


def check(got: torch.Tensor, want: torch.Tensor) -> None:
    assert BF16.violation(got, want) is None


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_products_and_residuals(form, rows, columns):
    stored, tiled = weight_of(form, rows, columns)
    whole = torch.randn(max(COUNTS), columns, device="cuda").bfloat16()
    added = torch.randn(max(COUNTS), rows, device="cuda").bfloat16()
    for count in COUNTS:
        x, residual = whole[:count], added[:count]
        check(fast.linear(x, tiled), reference.linear(x.double(), stored))
        want = reference.linear_add(x.double(), stored, residual.double())
        check(fast.linear_add(x, tiled, residual), want)
    assert fast.linear(whole[:0], tiled).shape == (0, rows)


@pytest.mark.parametrize("form", FORMATS)
def test_gated_products(form):
    for rows, columns in ((2048, 5120), (88, 640)):
        stored, tiled = weight_of(form, rows, columns, paired=True)
        x = torch.randn(64, columns, device="cuda").bfloat16()
        for count in (1, 16, 17, 64):
            want = reference.linear_swiglu(x[:count].double(), stored)
            check(fast.linear_swiglu(x[:count], tiled), want)
            check(fast.linear(x[:count], tiled), reference.linear(x[:count].double(), stored))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_rows_do_not_depend_on_the_number_of_tokens(form, rows, columns):
    _, tiled = weight_of(form, rows, columns)
    x = torch.randn(64, columns, device="cuda").bfloat16()
    few, many = fast.linear(x[:16], tiled), fast.linear(x, tiled)
    for count in range(1, 17):
        assert torch.equal(fast.linear(x[:count], tiled), few[:count])
    for count in (17, 31, 32, 33, 63):
        assert torch.equal(fast.linear(x[:count], tiled), many[:count])
    assert torch.equal(fast.linear(x[3:4], tiled), few[3:4])
    for _ in range(20):
        assert torch.equal(fast.linear(x[:16], tiled), few)


def test_strided_and_unaligned_rows():
    stored, tiled = weight_of(FORMATS[0], 256, 640)
    wide = torch.randn(5, 1300, device="cuda").bfloat16()
    for x in (wide[:, 8:648], wide[:, 3:643], wide[:, :640]):
        check(fast.linear(x, tiled), reference.linear(x.double(), stored))


def chain(weights: list[FragmentMatrix], x: torch.Tensor) -> list[torch.Tensor]:
    """Products that each read what the one before wrote."""
    found = []
    for weight in weights:
        x = fast.linear(x[:, : weight.shape[1]], weight)
        found.append(x)
    return found


@pytest.mark.parametrize("count", [1, 16, 40])
def test_a_captured_chain_gives_the_same_bits_at_every_replay(count):
    shapes = [(6144, 5120), (5120, 6144), (17408, 5120), (5120, 17408)] * 3
    weights = [weight_of(FORMATS[i % 4], *shape)[1] for i, shape in enumerate(shapes)]
    inputs = [torch.randn(count, 5120, device="cuda").bfloat16() for _ in range(3)]
    want = [[y.clone() for y in chain(weights, x)] for x in inputs]
    held = inputs[0].clone()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        outputs = chain(weights, held)
    for turn in range(12):
        for output in outputs:
            output.fill_(float("nan"))
        held.copy_(inputs[turn % 3])
        graph.replay()
        for got, right in zip(outputs, want[turn % 3], strict=True):
            assert torch.equal(got, right)


def test_what_it_does_not_serve_is_refused():
    stored, tiled = weight_of(FORMATS[0], 64, 640)
    x = torch.randn(2, 640, device="cuda")
    assert fast.serves(x.bfloat16(), tiled)
    for wrong in ((x, tiled), (x.bfloat16(), stored), (x.bfloat16().cpu(), tiled)):
        assert not fast.serves(*wrong)
        with pytest.raises(UnsupportedError, match="the CUDA form takes"):
            fast.linear(*wrong)
    with pytest.raises(UnsupportedError, match="paired rows"):
        fast.linear_swiglu(x.bfloat16(), tiled)
