"""Triton forms of norms, rotation and elementwise ops, interpreted: bf16, strides, refusals."""

from collections.abc import Iterator

import pytest
import torch

from ninfer import ops
from ninfer.errors import UnsupportedError
from ninfer.ops import dispatch
from ninfer.ops.case import Case
from ninfer.ops.compare import compare
from ninfer.ops.elementwise.cases import CASES as ELEMENTWISE
from ninfer.ops.norm import reference
from ninfer.ops.norm.cases import CASES as NORM
from ninfer.ops.rope.cases import CASES as ROPE
from ninfer.ops.tiers import PORTABLE


@pytest.fixture(autouse=True)
def portable() -> Iterator[None]:
    with dispatch.using("portable", only=PORTABLE.ops):
        yield


@pytest.mark.parametrize("case", [*NORM, *ELEMENTWISE, *ROPE], ids=lambda case: case.id)
def test_bf16_is_rounded_once(case: Case):
    assert compare(case, torch.bfloat16) == []


def test_the_norm_reads_the_sum_as_it_was_rounded():
    x, residual = torch.randn(2, 7, 64).bfloat16().unbind()
    weight = torch.randn(64).bfloat16()
    normed, total = ops.add_rmsnorm(x, residual, weight, eps=1e-6, unit_offset=True)
    assert torch.equal(total, x + residual)
    assert torch.equal(normed, ops.rmsnorm(total, weight, eps=1e-6, unit_offset=True))


def test_rows_of_any_strides_alone_and_in_company():
    wide, weight = torch.full((2, 5, 3, 160), torch.nan), torch.randn(32)
    wide[..., 64:96] = torch.randn(2, 5, 3, 32)
    x = wide[..., 64:96]
    got = ops.rmsnorm(x, weight, eps=1e-6, unit_offset=False)
    want = reference.rmsnorm(x.double(), weight.double(), eps=1e-6, unit_offset=False)
    assert torch.allclose(got.double(), want, rtol=1e-5)
    assert torch.equal(ops.rmsnorm(x[1, 2], weight, eps=1e-6, unit_offset=False), got[1, 2])
    gated = ops.sigmoid_mul(x, x)
    assert torch.equal(ops.sigmoid_mul(x[0, 4, 1], x[0, 4, 1]), gated[0, 4, 1])


def test_what_has_no_kernel_is_refused_by_name():
    double = torch.randn(2, 4, 8).double()
    with pytest.raises(UnsupportedError, match=r"l2norm: no Triton kernel for rows of .*float64"):
        ops.l2norm(double, eps=1e-6)
    with pytest.raises(UnsupportedError, match=r"silu_mul: .*float64; use bf16"):
        ops.silu_mul(double, double)
    with pytest.raises(UnsupportedError, match=r"mrope: .*float64"):
        ops.mrope(double, torch.zeros(3, 2, dtype=torch.int64), theta=1e4, rotary_dim=8)
    with pytest.raises(UnsupportedError, match="rows of 40000 numbers; at most 32768"):
        ops.l2norm(torch.ones(1, 40000), eps=1e-6)
