"""Experts and row ops are timed only when their check passed; kernels are played by references."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ninfer.bench import moe_case, ops_moe, row_case
from ninfer.bench.moe_case import Mixture
from ninfer.bench.timer import Timing
from ninfer.errors import FormatError, UnsupportedError
from ninfer.ops.linear.fragment_order import from_fragments
from ninfer.ops.moe import portable, reference
from ninfer.ops.tensors import ExpertWeights, SharedExpert

CPU = torch.device("cpu")
TIMING = Timing(median=1e-5, fastest=1e-5, slowest=2e-5, repeats=3)


def right(x: Tensor, weights: Tensor, ids: Tensor, experts, shared, score: Tensor) -> Tensor:
    """What right kernels give, row by row as they must."""
    stored = (
        ExpertWeights(from_fragments(experts.gate_up), from_fragments(experts.down), experts.count),
        SharedExpert(from_fragments(shared.gate_up), from_fragments(shared.down)),
    )
    return reference.sparse_moe(x, weights, ids, *stored, score)


def routed(x: Tensor, router: Tensor, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    return reference.route_experts(x, router, top_k)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Mixture:
    monkeypatch.setattr(moe_case, "_INPUTS", 2)
    monkeypatch.setattr(moe_case, "_ROUTER_COPIES", 2)
    monkeypatch.setattr(portable, "route_experts", routed)
    monkeypatch.setattr(portable, "sparse_moe", right)
    return moe_case.mixture(CPU, experts=6, top_k=2, dim=128, inner=128)


def test_a_checked_mixture_has_rows_with_the_bytes_of_its_distinct_experts(small, monkeypatch):
    monkeypatch.setattr(ops_moe, "MIXTURE_TOKENS", (1, 3))
    monkeypatch.setattr(ops_moe, "replayed", lambda calls: TIMING if calls[0]() is not None else 0)
    rows = ops_moe.mixture_rows(small, 4.0)
    names = [f"MoE {part} 35B portable" for part in ("router", "experts", "layer")]
    assert [row.name for row in rows] == [name for name in names for _ in range(4)]
    experts = small.held[0]
    one = (experts.gate_up.nbytes + experts.down.nbytes) // 6
    shared = small.held[1].gate_up.nbytes + small.held[1].down.nbytes
    assert small.distinct(1) == 2
    assert rows[4].value == pytest.approx((2 * one + shared) / 1e-5 / 1e12)
    assert rows[8].value == pytest.approx((2 * one + shared + 7 * 128 * 2) / 1e-5 / 1e12)
    assert 2 < small.distinct(64) <= 6


def unwritten(*arguments: Any) -> Tensor:
    y = right(*arguments)
    y[-1, -1] = float("nan")
    return y


def off(*arguments: Any) -> Tensor:
    return right(*arguments).mul_(1.02)


def fickle(*arguments: Any) -> Tensor:
    """Right, but a last bit differs with the number of rows."""
    y = right(*arguments)
    if y.shape[0] == 1:
        y.view(torch.int16)[0, 0] += 1
    return y


@pytest.mark.parametrize(
    ("broken", "why"), [(unwritten, "not finite"), (off, "error norm"), (fickle, "rows differ")]
)
def test_wrong_experts_are_never_timed(small, monkeypatch, broken: Callable, why: str):
    monkeypatch.setattr(portable, "sparse_moe", broken)
    monkeypatch.setattr(ops_moe, "replayed", lambda *_: pytest.fail("timed"))
    with pytest.raises(FormatError, match=f"{why}.*not timed"):
        ops_moe.mixture_rows(small, 4.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda w, ids, s: (w, ids + 1 - 2 * (ids > 0), s), "not the best"),
        (lambda w, ids, s: (w.flip(1), ids, s), "weights are off"),
        (lambda w, ids, s: (w, ids, s + 1), "score is off"),
    ],
)
def test_a_wrong_router_is_refused(small, monkeypatch, change: Callable, why: str):
    monkeypatch.setattr(portable, "route_experts", lambda *a: change(*routed(*a)))
    with pytest.raises(FormatError, match=why):
        moe_case.check(small, (1, 4))


@pytest.mark.parametrize("op", row_case.CASES, ids=lambda op: f"{op.name}-{op.shape}")
def test_row_ops_are_checked_then_timed(op, monkeypatch):
    monkeypatch.setattr(row_case, "_MOST_COPIES", 2)
    played = replace(op, run=lambda *a, **o: op.exact(*a, **o))
    case = row_case.rows(op, 2, CPU)
    case = replace(case, op=played)
    monkeypatch.setattr(ops_moe, "replayed", lambda calls: TIMING if calls[0]() is not None else 0)
    rate, _ = ops_moe.row_op_rows([case], 4.0)
    count = 2 * 2 * torch.Size(op.shape).numel() * (op.read + op.written)
    assert rate.value == pytest.approx(count / 1e-5 / 1e12)
    assert rate.reference_name == "memory copy"
    wrong = replace(case, op=replace(op, run=lambda *a, **o: spoiled(op, a, o)))
    with pytest.raises(FormatError, match=f"{op.name} .*not timed"):
        ops_moe.row_op_rows([wrong], 4.0)


def spoiled(op, arguments: tuple, options: dict) -> Any:
    """The right result with one number that was never written."""
    found = op.exact(*arguments, **options)
    last = found[-1] if isinstance(found, tuple) else found
    last.view(-1)[-1] = float("nan")
    return found


def test_failures_stand_beside_what_passed(monkeypatch):
    def refused(*_: Any) -> Any:
        raise FormatError("mixture of experts: wrong; not timed")

    def missing(*_: Any) -> Any:
        raise UnsupportedError("NVRTC cannot be loaded")

    monkeypatch.setattr(moe_case, "mixture", lambda device: None)
    monkeypatch.setattr(moe_case, "by_cuda", missing)
    monkeypatch.setattr(ops_moe, "mixture_rows", refused)
    monkeypatch.setattr(row_case, "CASES", row_case.CASES[:1])
    monkeypatch.setattr(row_case, "rows", lambda op, count, device: count)
    monkeypatch.setattr(ops_moe, "row_op_rows", lambda cases, copied: list(cases))
    assert ops_moe.all_rows(CPU, 4.0, 4.0) == (
        [1, 64, 2048],
        ["mixture of experts: wrong; not timed", "NVRTC cannot be loaded"],
    )
