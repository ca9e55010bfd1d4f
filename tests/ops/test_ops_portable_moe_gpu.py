"""Experts, norms and rope on a card: sizes of the 35B, any number of rows bit for bit, graphs."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.formats import quantise
from ninfer.ops import dispatch
from ninfer.ops.moe import reference
from ninfer.ops.tensors import ExpertWeights, SharedExpert, StoredWeight
from ninfer.ops.tolerance import BF16

pytestmark = pytest.mark.gpu

# Gate/up and down of the routed experts, then of the shared one: layers of the 35B, its MTP layer,
# and forms that are read row by row.
FORMS = {
    "decoder": ("Q4G64_F16S", "Q5G64_F16S", "W8G32_F16S", "W8G32_F16S"),
    "last": ("Q4G64_F16S", "Q6G64_F16S", "W8G32_F16S", "W8G32_F16S"),
    "mtp": ("W8G32_F16S",) * 4,
    "dense": ("BF16",) * 4,
    "fp8": ("FP8_E4M3FN_ROW_BF16S",) * 4,
    "nvfp4": ("NVFP4",) * 4,
}
DIM, INNER, EXPERTS, TOP_K = 2048, 512, 24, 8


@pytest.fixture(autouse=True, scope="module")
def on_this_card() -> Iterator[None]:
    major, minor = torch.cuda.get_device_capability()
    dispatch.set_backend("triton", 10 * major + minor)
    yield
    dispatch.set_backend("reference")


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda").bfloat16()


def stored_weight(form: str, rows: int, columns: int) -> StoredWeight:
    values = torch.randn(rows, columns, device="cuda") * columns**-0.5
    return values.bfloat16() if form == "BF16" else quantise(values, form)


class Layer:
    """A router and experts of the 35B's widths, a tenth of them."""

    def __init__(self, name: str) -> None:
        sizes = (
            (EXPERTS * 2 * INNER, DIM),
            (EXPERTS * DIM, INNER),
            (2 * INNER, DIM),
            (DIM, INNER),
        )
        stored = [stored_weight(f, *size) for f, size in zip(FORMS[name], sizes, strict=True)]
        held = [ops.resident(weight) for weight in stored]
        self.router = noise(EXPERTS + 1, DIM) * DIM**-0.5
        self.stored = ExpertWeights(*stored[:2], EXPERTS), SharedExpert(*stored[2:])
        self.held = ExpertWeights(*held[:2], EXPERTS), SharedExpert(*held[2:])

    def run(self, x: Tensor) -> Tensor:
        weights, ids, score = ops.route_experts(x, self.router, TOP_K)
        return ops.sparse_moe(x, weights, ids, *self.held, score)

    def exact(self, x: Tensor) -> Tensor:
        weights, ids, score = reference.route_experts(x.double(), self.router, TOP_K)
        return reference.sparse_moe(x.double(), weights, ids, *self.stored, score)


@pytest.fixture(scope="module", params=FORMS)
def layer(request: pytest.FixtureRequest, on_this_card: None) -> Layer:
    torch.manual_seed(0)
    return Layer(request.param)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 129, 600])
def test_borders_of_the_routes(layer: Layer, count: int):
    x = noise(count, DIM)
    assert BF16.violation(layer.run(x), layer.exact(x)) is None


def test_a_row_is_the_same_for_every_number_of_rows(layer: Layer):
    x = noise(64, DIM)
    together = layer.run(x)
    for count in range(1, 65):
        part = slice((64 - count) // 2, (64 - count) // 2 + count)
        assert torch.equal(layer.run(x[part].clone()), together[part]), count


def test_a_row_of_many_is_the_same_in_any_company(layer: Layer):
    x = noise(300, DIM)
    together = layer.run(x)
    for part in (slice(0, 65), slice(7, 135), slice(100, 300)):
        assert torch.equal(layer.run(x[part].clone()), together[part])


@pytest.mark.parametrize("count", [1, 5, 16, 17, 64])
def test_captured_and_replayed(layer: Layer, count: int):
    x = noise(count, DIM)
    layer.run(x)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer.run(x)
    for _ in range(3):
        x.copy_(noise(count, DIM))
        out.fill_(torch.nan)
        graph.replay()
        assert torch.equal(out, layer.run(x))


def test_all_rows_on_eight_experts(layer: Layer):
    """The longest list of rows that an expert can get, and it is the same one for each."""
    x = noise(1, DIM).expand(64, DIM).contiguous()
    got = layer.run(x)
    assert BF16.violation(got, layer.exact(x)) is None
    assert torch.equal(got, got[:1].expand(64, DIM))


def test_sums_do_not_depend_on_who_comes_last(layer: Layer):
    x = noise(16, DIM)
    first = layer.run(x)
    assert all(torch.equal(layer.run(x), first) for _ in range(50))


def test_routing_of_256_experts():
    x, router = noise(65, DIM), noise(257, DIM) * DIM**-0.5
    want = reference.route_experts(x.double(), router, 8)
    together = ops.route_experts(x[:64].clone(), router, 8)
    for count in (1, 16, 17, 64, 65):
        got = ops.route_experts(x[:count].clone(), router, 8)
        assert torch.equal(got[1], want[1][:count])
        for found, exact in ((got[0], want[0]), (got[2], want[2])):
            assert torch.allclose(found.double(), exact[:count], atol=1e-5)
        if count <= 64:
            for found, whole in zip(got, together, strict=True):
                assert torch.equal(found, whole[:count])


def pointwise(count: int) -> dict[str, tuple[list[Tensor], Callable[[list[Tensor]], Tensor]]]:
    """Inputs of `count` rows, and an op on them, for each op of this kind."""
    weight, narrow = noise(5120), noise(128)
    positions = torch.randint(0, 262_144, (3, count), device="cuda")
    heads = {"x": [noise(count, 24, 256)], "fused": [noise(count, 9, 4, 256)[:, 3]]}
    turn = partial(ops.mrope, theta=1e7, rotary_dim=64)
    return {
        "rmsnorm": (
            [noise(count, 5120)],
            lambda a: ops.rmsnorm(a[0], weight, eps=1e-6, unit_offset=True),
        ),
        "add_rmsnorm": (
            [noise(count, 5120), noise(count, 5120)],
            lambda a: torch.cat(ops.add_rmsnorm(*a, weight, eps=1e-6, unit_offset=True)),
        ),
        "gated_rmsnorm": (
            [noise(count, 32, 128), noise(count, 32, 128)],
            lambda a: ops.gated_rmsnorm(*a, narrow, eps=1e-6),
        ),
        "l2norm": ([noise(count, 16, 128)], lambda a: ops.l2norm(a[0], eps=1e-6)),
        "silu_mul": ([noise(count, 512), noise(count, 512)], lambda a: ops.silu_mul(*a)),
        "sigmoid_mul": ([noise(count, 4096), noise(count, 4096)], lambda a: ops.sigmoid_mul(*a)),
        "add": ([noise(count, 1152), noise(count, 1152)], lambda a: ops.add(*a)),
        "mrope": (heads["x"], lambda a: turn(a[0], positions[:, : len(a[0])].contiguous())),
        "mrope_strided": (heads["fused"], lambda a: turn(a[0], positions[:, : len(a[0])])),
    }


POINTWISE = (
    *("rmsnorm", "add_rmsnorm", "gated_rmsnorm", "l2norm", "silu_mul", "sigmoid_mul", "add"),
    *("mrope", "mrope_strided"),
)


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("count", [1, 16, 64, 300])
def test_pointwise_in_graphs_and_in_any_company(name: str, count: int):
    inputs, op = pointwise(count)[name]
    whole = op(inputs)
    with dispatch.using("reference"):
        assert BF16.violation(whole, op([x.double() for x in inputs])) is None
    if name != "add_rmsnorm":
        alone = op([x[: max(count // 3, 1)] for x in inputs])
        assert torch.equal(alone, whole[: len(alone)])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op(inputs)
    for x in inputs:
        x.copy_(noise(*x.shape))
    out.fill_(torch.nan)
    graph.replay()
    assert torch.equal(out, op(inputs))
