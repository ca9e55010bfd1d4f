"""The CUDA experts on a card: sizes of the 35B, bits in any company, chains in graphs."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ninfer.formats import quantise
from ninfer.ops.linear.fragment_order import groups_of, to_fragments
from ninfer.ops.moe import fast, reference
from ninfer.ops.tensors import ExpertWeights, SharedExpert
from ninfer.ops.tolerance import BF16

pytestmark = pytest.mark.gpu

# Gate/up and down of the routed experts, then of the shared one: layers of the 35B, its MTP layer.
FORMS = {
    "decoder": ("Q4G64_F16S", "Q5G64_F16S", "W8G32_F16S", "W8G32_F16S"),
    "last": ("Q4G64_F16S", "Q6G64_F16S", "W8G32_F16S", "W8G32_F16S"),
    "mtp": ("W8G32_F16S",) * 4,
}
DIM, INNER, EXPERTS, TOP_K = 2048, 512, 40, 8


class Layer:
    """A router and experts of the 35B's widths, some of them."""

    def __init__(self, name: str) -> None:
        sizes = (
            (EXPERTS * 2 * INNER, DIM),
            (EXPERTS * DIM, INNER),
            (2 * INNER, DIM),
            (DIM, INNER),
        )
        stored = []
        for form, (rows, columns) in zip(FORMS[name], sizes, strict=True):
            values = torch.randn(rows, columns, device="cuda") * columns**-0.5
            stored.append(quantise(values, form))
        held = [to_fragments(weight, groups_of(weight.shape[1])) for weight in stored]
        self.router = (torch.randn(EXPERTS + 1, DIM, device="cuda") * DIM**-0.5).bfloat16()
        self.stored = ExpertWeights(*stored[:2], EXPERTS), SharedExpert(*stored[2:])
        self.held = ExpertWeights(*held[:2], EXPERTS), SharedExpert(*held[2:])
        layer = fast.layer_of(TOP_K, *self.held)
        assert layer is not None
        fast.ready(self.router.device, layer)

    def run(self, x: Tensor) -> Tensor:
        weights, ids, score = fast.route_experts(x, self.router, TOP_K)
        return fast.sparse_moe(x, weights, ids, *self.held, score)

    def exact(self, x: Tensor) -> Tensor:
        weights, ids, score = fast.route_experts(x, self.router, TOP_K)
        wide = (x.double(), weights.double(), ids)
        return reference.sparse_moe(*wide, *self.stored, score.double())


@pytest.fixture(scope="module", params=FORMS)
def layer(request: pytest.FixtureRequest) -> Iterator[Layer]:
    torch.manual_seed(0)
    yield Layer(request.param)


def noise(count: int) -> Tensor:
    return torch.randn(count, DIM, device="cuda").bfloat16()


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 16, 17, 33, 63, 64])
def test_borders_of_the_routes(layer: Layer, count: int):
    x = noise(count)
    assert BF16.violation(layer.run(x), layer.exact(x)) is None
    logits = x.double() @ layer.router.double().T
    weights, ids, score = fast.route_experts(x, layer.router, TOP_K)
    picked, best = logits.gather(1, ids), reference.route_topk(logits[:, :-1], TOP_K)[1]
    assert (picked - logits.gather(1, best)).abs().max() < 1e-5
    assert (weights - picked.softmax(-1)).abs().max() < 1e-5
    assert torch.allclose(score.double(), logits[:, -1:], atol=1e-5)
    assert layer.run(x[:0]).shape == (0, DIM)


def test_a_row_is_the_same_for_every_number_of_rows(layer: Layer):
    x = noise(64)
    together = layer.run(x)
    for count in range(1, 65):
        part = slice((64 - count) // 2, (64 - count) // 2 + count)
        assert torch.equal(layer.run(x[part].clone()), together[part]), count
    for _ in range(20):
        assert torch.equal(layer.run(x), together)


def test_all_rows_on_eight_experts(layer: Layer):
    x = noise(1).expand(64, DIM).contiguous()
    got = layer.run(x)
    assert BF16.violation(got, layer.exact(x)) is None
    assert torch.equal(got, got[:1].expand(64, DIM))


@pytest.mark.parametrize("count", [1, 5, 16, 64])
def test_a_captured_chain_gives_the_same_bits_at_every_replay(layer: Layer, count: int):
    """Layers behind one another, each started while the one before still runs."""

    def chain(x: Tensor) -> list[Tensor]:
        found = []
        for _ in range(6):
            x = layer.run(x) + x
            found.append(x)
            x = layer.run(x)
            found.append(x)
        return found

    inputs = [noise(count) for _ in range(3)]
    want = [[y.clone() for y in chain(x)] for x in inputs]
    held = inputs[0].clone()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = chain(held)
    for turn in range(12):
        for output in outputs:
            output.fill_(torch.nan)
        held.copy_(inputs[turn % 3])
        graph.replay()
        for got, right in zip(outputs, want[turn % 3], strict=True):
            assert torch.equal(got, right)
