"""Triton forms of routing and experts, interpreted: routes, company, distinct experts, refusals."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import UnsupportedError
from ninfer.formats import quantise
from ninfer.ops import dispatch
from ninfer.ops.case import Case
from ninfer.ops.compare import compare
from ninfer.ops.linear.fragment_order import to_fragments
from ninfer.ops.moe import kernels, reference
from ninfer.ops.moe.cases import CASES
from ninfer.ops.moe.spans import expert_spans
from ninfer.ops.tensors import ExpertWeights, SharedExpert, StoredWeight
from ninfer.ops.tiers import PORTABLE

# Triton 3.6's interpreter makes scalars of arrays for every range with a run-time bound.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

STORED = ("Q4G64_F16S", "Q5G64_F16S", "W8G32_F16S", "W8G32_F16S")


@pytest.fixture(autouse=True)
def portable() -> Iterator[None]:
    with dispatch.using("portable", only=PORTABLE.ops):
        yield


def weight_of(form: str, rows: int, columns: int) -> StoredWeight:
    values = torch.randn(rows, columns) * columns**-0.5
    return values.bfloat16() if form == "BF16" else quantise(values, form)


class Mixture:
    """Experts in their stored and in their resident form."""

    def __init__(
        self, forms: tuple[str, str, str, str], experts: int, dim: int, inner: int, shared: int = 0
    ) -> None:
        sizes = (
            (experts * 2 * inner, dim),
            (experts * dim, inner),
            (2 * (shared or inner), dim),
            (dim, shared or inner),
        )
        weights = [weight_of(form, *size) for form, size in zip(forms, sizes, strict=True)]
        self.stored = self._views(weights, experts)
        self.resident = self._views([ops.resident(weight) for weight in weights], experts)

    @staticmethod
    def _views(weights: list[Any], experts: int) -> tuple[ExpertWeights, SharedExpert]:
        return ExpertWeights(weights[0], weights[1], experts), SharedExpert(*weights[2:])

    def run(self, x: Tensor, weights: Tensor, ids: Tensor, score: Tensor) -> Tensor:
        return ops.sparse_moe(x, weights, ids, *self.resident, score)

    def exact(self, x: Tensor, weights: Tensor, ids: Tensor, score: Tensor) -> Tensor:
        wide = (x.double(), weights.double(), ids)
        return reference.sparse_moe(*wide, *self.stored, score.double())


def scene(count: int, experts: int, top_k: int, dim: int) -> tuple[Tensor, ...]:
    """x, weights, ids and score of rows that choose at random."""
    ids = torch.stack([torch.randperm(experts)[:top_k] for _ in range(count)])
    return torch.randn(count, dim), torch.rand(count, top_k), ids, torch.randn(count, 1)


def error(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@pytest.mark.parametrize("name", ["w8", "nvfp4", "one_row"])
def test_bf16_meets_its_criterion(name: str):
    (case,) = [case for case in CASES if case.id == f"sparse_moe-{name}"]
    assert compare(case, torch.bfloat16) == []


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op is not ops.sparse_moe], ids=lambda c: c.id
)
def test_routing_in_bf16(case: Case):
    assert compare(case, torch.bfloat16) == []


# One to the left and to the right of a program's 8 tokens, of 16, where the second pass adds the
# ranks up, and of 64, from where on pairs are sorted.
@pytest.mark.parametrize("count", [1, 8, 9, 16, 17, 64, 65])
@pytest.mark.parametrize("forms", [("Q4G64_F16S",) * 4, ("BF16",) * 4], ids=["q4", "bf16"])
def test_borders_of_the_routes(forms: tuple[str, str, str, str], count: int):
    mixture, rows = Mixture(forms, 2, 16, 16), scene(count, 2, 1, 16)
    assert error(mixture.run(*rows), mixture.exact(*rows)) < 1e-6


@pytest.mark.parametrize("forms", [STORED, ("BF16",) * 4], ids=["as_stored", "bf16"])
def test_a_row_is_the_same_alone_and_in_company(forms: tuple[str, str, str, str]):
    mixture, rows = Mixture(forms, 4, 32, 16), scene(10, 4, 2, 32)
    together = mixture.run(*rows)
    for part in (slice(0, 1), slice(3, 5), slice(1, 10)):
        assert torch.equal(mixture.run(*(value[part].clone() for value in rows)), together[part])


@pytest.mark.parametrize("count", [20, 70])
def test_every_row_may_choose_one_expert(count: int):
    """More rows than a program takes at a time, and than a span holds."""
    mixture, rows = Mixture(STORED, 4, 16, 16), scene(count, 4, 1, 16)
    rows[2].fill_(2)
    assert error(mixture.run(*rows), mixture.exact(*rows)) < 1e-6


def test_a_distinct_expert_is_read_once(monkeypatch: pytest.MonkeyPatch):
    """Up to 8 tokens: one pass over gate and up for each expert that some row chose."""
    mixture, (x, weights, _, score) = Mixture(STORED, 8, 32, 48), scene(4, 8, 2, 32)
    ids = torch.tensor([[5, 1], [1, 7], [5, 7], [7, 5]])
    seen: Counter[int] = Counter()
    original = kernels.gate_up_block

    def spy(source, act, t, pair, expert, *rest):
        seen[int(expert.handle.data.item())] += 1
        return original(source, act, t, pair, expert, *rest)

    monkeypatch.setattr(kernels, "gate_up_block", spy)
    got = mixture.run(x, weights, ids, score)
    # 48 inner rows are three blocks of 16; the shared expert counts as expert 0.
    assert seen == {0: 3, 1: 3, 5: 3, 7: 3}
    assert error(got, mixture.exact(x, weights, ids, score)) < 1e-6


def test_counters_need_no_clean_memory(monkeypatch: pytest.MonkeyPatch):
    mixture, rows = Mixture(STORED, 3, 64, 16), scene(3, 3, 2, 64)
    empty = torch.empty

    def full(*size: Any, **options: Any) -> Tensor:
        out = empty(*size, **options)
        return out if out.is_floating_point() else out.fill_(99)

    monkeypatch.setattr(torch, "empty", full)
    assert error(mixture.run(*rows), mixture.exact(*rows)) < 1e-6


def test_rows_with_a_stride_and_widths_that_differ():
    wide = torch.full((5, 200), torch.nan)
    mixture = Mixture(STORED, 3, 96, 16, shared=48)
    x, weights, ids, score = scene(5, 3, 2, 96)
    wide[:, 32:128] = x
    got = mixture.run(wide[:, 32:128], weights, ids, score)
    assert error(got, mixture.exact(x, weights, ids, score)) < 1e-6


@pytest.mark.parametrize("slice_groups", [2, 8], ids=["last_cut_short", "longer_than_the_row"])
def test_slices_of_the_fast_tier_are_read(slice_groups: int):
    mixture, rows = Mixture(("Q4G64_F16S",) * 4, 2, 320, 16), scene(2, 2, 1, 320)
    experts, shared = mixture.stored
    weights = (experts.gate_up, experts.down, shared.gate_up, shared.down)
    sliced = [to_fragments(weight, slice_groups) for weight in weights]
    got = ops.sparse_moe(*rows[:3], *Mixture._views(sliced, 2), rows[3])
    assert error(got, mixture.exact(*rows)) < 1e-6


@pytest.mark.parametrize(
    ("count", "top_k", "experts"), [(5, 2, 4), (40, 8, 16), (1, 1, 1), (9, 3, 200)]
)
def test_spans_hold_each_pair_once_under_its_expert(count: int, top_k: int, experts: int):
    ids = torch.stack([torch.randperm(experts)[:top_k] for _ in range(count)])
    spans, order = expert_spans(ids, experts, 8)
    flat, found = ids.flatten().tolist(), []
    for expert, start, stop in spans.T.tolist():
        pairs = order[start : min(start + 8, stop)].tolist()
        assert (expert == -1) == (not pairs)
        assert all(flat[pair] == expert for pair in pairs)
        assert pairs == sorted(pairs)
        found += pairs
    assert sorted(found) == list(range(count * top_k))


def test_routing_alone_and_in_company():
    x, router = torch.randn(65, 192), torch.randn(38, 192).bfloat16()
    together = ops.route_experts(x[:17].clone(), router, 4)
    for part in (slice(0, 1), slice(5, 17)):
        for alone, whole in zip(
            ops.route_experts(x[part].clone(), router, 4), together, strict=True
        ):
            assert torch.equal(alone, whole[part])
    want = reference.route_experts(x.double(), router, 4)
    for got, exact in zip(ops.route_experts(x, router, 4), want, strict=True):
        assert torch.allclose(got.double(), exact.double(), atol=1e-5)


def test_routing_ties_zeros_and_extremes():
    zeros = torch.tensor([[0.0, -0.0, 0.0, -1.0, -0.0]])
    assert ops.route_topk(zeros, 5)[1].tolist() == [[0, 1, 2, 4, 3]]
    far = torch.tensor([[-1e38, 1.0, 1e38, 1.0, -torch.inf]])
    weights, ids = ops.route_topk(far, 5)
    assert ids.tolist() == [[2, 1, 3, 0, 4]]
    assert weights.tolist() == [[1.0, 0.0, 0.0, 0.0, 0.0]]
    columns = torch.randn(4, 90)[:, 7:40]
    for got, want in zip(ops.route_topk(columns, 3), reference.route_topk(columns, 3), strict=True):
        assert torch.allclose(got, want)


def test_what_has_no_kernel_is_refused_by_name():
    mixture, rows = Mixture(("Q4G64_F16S",) * 4, 2, 64, 32), scene(2, 2, 1, 64)
    experts, shared = mixture.stored
    with pytest.raises(UnsupportedError, match="sparse_moe: Q4G64_F16S comes in its stored planes"):
        ops.sparse_moe(*rows[:3], experts, shared, rows[3])
    paired = SharedExpert(ops.resident(shared.gate_up, paired=True), mixture.resident[1].down)
    with pytest.raises(UnsupportedError, match="sparse_moe: Q4G64_F16S experts have paired rows"):
        ops.sparse_moe(*rows[:3], mixture.resident[0], paired, rows[3])
    with pytest.raises(UnsupportedError, match=r"sparse_moe: no Triton kernel for .*float64"):
        mixture.run(rows[0].double(), *rows[1:])
    narrow, few = Mixture(("Q4G64_F16S",) * 4, 2, 64, 24), scene(2, 2, 1, 64)
    with pytest.raises(UnsupportedError, match="width 24; it must be a multiple of 16"):
        narrow.run(*few)
    with pytest.raises(UnsupportedError, match=r"route_topk: .*float64"):
        ops.route_topk(torch.randn(1, 4).double(), 2)
    with pytest.raises(UnsupportedError, match="route_experts: Q4G64_F16S comes in its stored"):
        ops.route_experts(torch.randn(1, 64), quantise(torch.randn(5, 64), "Q4G64_F16S"), 2)
