"""Routing and experts against loops, ties, packed experts and which experts are decoded."""

import math

import pytest
import torch
from torch import Tensor

from ninfer.formats import Nvfp4Matrix, dequantise, quantise
from ninfer.ops import ExpertWeights, SharedExpert, route_topk, sparse_moe

FLOAT64 = torch.float64


def test_routing_formula():
    logits = torch.randn(20, 16, dtype=FLOAT64)
    weights, ids = route_topk(logits, 3)
    for t in range(20):
        powers = [math.exp(u) for u in logits[t].tolist()]
        shares = [p / sum(powers) for p in powers]
        best = sorted(range(16), key=lambda e: (-shares[e], e))[:3]
        total = sum(shares[e] for e in best)
        assert ids[t].tolist() == best
        assert weights[t].tolist() == pytest.approx([shares[e] / total for e in best], rel=1e-12)


def test_lower_id_wins_ties():
    logits = torch.tensor([[1.0, 2.0, 2.0, 1.0, 2.0, 1.0]])
    weights, ids = route_topk(logits, 4)
    assert ids.tolist() == [[1, 2, 4, 0]]
    assert weights.sum().item() == pytest.approx(1.0)
    assert route_topk(torch.zeros(1, 256), 8)[1].tolist() == [list(range(8))]


def test_far_apart_logits_stay_finite():
    weights, ids = route_topk(torch.tensor([[-1e30, 0.0, 1e30, -1e30]]), 3)
    assert ids.tolist() == [[2, 1, 0]]
    assert weights.tolist() == [[1.0, 0.0, 0.0]]


def swiglu(x: list[float], gate_up: list[list[float]], down: list[list[float]]) -> list[float]:
    def dot(row: list[float], y: list[float]) -> float:
        return sum(a * b for a, b in zip(row, y, strict=True))

    half = len(gate_up) // 2
    gate = [dot(row, x) for row in gate_up[:half]]
    up = [dot(row, x) for row in gate_up[half:]]
    inner = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up, strict=True)]
    return [dot(row, inner) for row in down]


def loops(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    gate_up: Tensor,
    down: Tensor,
    shared: SharedExpert,
    score: Tensor,
) -> Tensor:
    """Every expert of every row, one product at a time, from [E, 2I, D] and [E, D, I]."""
    assert isinstance(shared.gate_up, Tensor) and isinstance(shared.down, Tensor)
    out = []
    for t, row in enumerate(x.tolist()):
        total = [0.0] * len(row)
        for weight, e in zip(weights[t].tolist(), ids[t].tolist(), strict=True):
            y = swiglu(row, gate_up[e].tolist(), down[e].tolist())
            total = [a + weight * b for a, b in zip(total, y, strict=True)]
        share = 1 / (1 + math.exp(-score[t].item()))
        y = swiglu(row, shared.gate_up.tolist(), shared.down.tolist())
        out.append([a + share * b for a, b in zip(total, y, strict=True)])
    return torch.tensor(out, dtype=FLOAT64)


def scene(count: int, experts: int, dim: int, inner: int):
    gate_up = torch.randn(experts, 2 * inner, dim, dtype=FLOAT64) / dim**0.5
    down = torch.randn(experts, dim, inner, dtype=FLOAT64) / inner**0.5
    shared = SharedExpert(
        torch.randn(2 * inner, dim, dtype=FLOAT64), torch.randn(dim, inner, dtype=FLOAT64)
    )
    x, score = torch.randn(count, dim, dtype=FLOAT64), torch.randn(count, 1, dtype=FLOAT64)
    return gate_up, down, shared, x, score


def test_loops():
    gate_up, down, shared, x, score = scene(6, 5, 8, 6)
    weights, ids = route_topk(torch.randn(6, 5, dtype=FLOAT64), 2)
    experts = ExpertWeights(gate_up.flatten(0, 1), down.flatten(0, 1), 5)
    got = sparse_moe(x, weights, ids, experts, shared, score)
    assert (got - loops(x, weights, ids, gate_up, down, shared, score)).abs().max() < 1e-13


def test_a_row_is_the_same_alone_and_in_company():
    gate_up, down, shared, x, score = scene(9, 6, 8, 6)
    weights, ids = route_topk(torch.randn(9, 6, dtype=FLOAT64), 3)
    experts = ExpertWeights(gate_up.flatten(0, 1), down.flatten(0, 1), 6)
    whole = sparse_moe(x, weights, ids, experts, shared, score)
    for t in range(9):
        one = slice(t, t + 1)
        alone = sparse_moe(x[one], weights[one], ids[one], experts, shared, score[one])
        assert (alone - whole[one]).abs().max() < 1e-14


@pytest.mark.parametrize("form", ["Q4G64_F16S", "Q6G64_F16S", "W8G32_F16S", "NVFP4"])
def test_packed_experts_equal_their_decoded_values(form: str):
    gate_up, down, shared, x, score = scene(4, 3, 128, 64)
    packed = ExpertWeights(
        quantise(gate_up.flatten(0, 1).float(), form), quantise(down.flatten(0, 1).float(), form), 3
    )
    plain = ExpertWeights(dequantise(packed.gate_up, FLOAT64), dequantise(packed.down, FLOAT64), 3)
    weights, ids = route_topk(torch.randn(4, 3, dtype=FLOAT64), 2)
    got = sparse_moe(x, weights, ids, packed, shared, score)
    assert (got - sparse_moe(x, weights, ids, plain, shared, score)).abs().max() < 1e-13


def test_only_chosen_experts_are_decoded(monkeypatch: pytest.MonkeyPatch):
    gate_up, down, shared, x, score = scene(3, 8, 128, 64)
    packed = ExpertWeights(
        quantise(gate_up.flatten(0, 1).float(), "NVFP4"),
        quantise(down.flatten(0, 1).float(), "NVFP4"),
        8,
    )
    seen = set()
    original = Nvfp4Matrix.rows

    def spy(self, start: int, stop: int):
        if self is packed.gate_up:
            seen.add((start // 128, stop // 128))
        return original(self, start, stop)

    monkeypatch.setattr(Nvfp4Matrix, "rows", spy)
    ids = torch.tensor([[2, 5], [5, 2], [2, 7]])
    sparse_moe(x, torch.full((3, 2), 0.5, dtype=FLOAT64), ids, packed, shared, score)
    assert seen == {(2, 3), (5, 6), (7, 8)}


def test_bf16_result_is_rounded_once():
    gate_up, down, shared, x, score = scene(16, 4, 32, 16)
    weights, ids = route_topk(torch.randn(16, 4), 2)
    experts = ExpertWeights(gate_up.flatten(0, 1).bfloat16(), down.flatten(0, 1).bfloat16(), 4)
    shared = SharedExpert(shared.gate_up.bfloat16(), shared.down.bfloat16())
    x, score = x.bfloat16(), score.bfloat16()
    got = sparse_moe(x, weights, ids, experts, shared, score)
    wide = ExpertWeights(experts.gate_up.double(), experts.down.double(), 4)
    wide_shared = SharedExpert(shared.gate_up.double(), shared.down.double())
    want = sparse_moe(x.double(), weights.double(), ids, wide, wide_shared, score.double())
    assert (got != want.bfloat16()).float().mean() < 5e-3
