"""Every case of every op meets the criterion of its number type against the float64 reference."""

import inspect

import pytest
import torch

from ninfer.ops.case import Case
from ninfer.ops.cases import ALL_CASES
from ninfer.ops.compare import compare
from ninfer.ops.dispatch import op_names


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.id)
def test_case_meets_its_criterion(case: Case, dtype: torch.dtype):
    assert compare(case, dtype) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.id)
def test_case_meets_its_criterion_on_a_card(case: Case, dtype: torch.dtype):
    assert compare(case, dtype, "cuda") == []


def test_every_op_has_cases_of_distinct_names():
    assert {case.op.__name__ for case in ALL_CASES} == set(op_names())
    assert len({case.id for case in ALL_CASES}) == len(ALL_CASES)


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.id)
def test_case_names_every_required_parameter(case: Case):
    arguments = case.make(torch.float32).arguments
    assert arguments.keys() == inspect.signature(case.op).parameters.keys()


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.id)
def test_results_are_fresh_tensors(case: Case):
    arguments = case.make(torch.float32).arguments
    inputs = {
        x.untyped_storage().data_ptr()
        for x in arguments.values()
        if isinstance(x, torch.Tensor) and x.numel()
    }
    result = case.op(**arguments)
    results = result if isinstance(result, tuple) else (result,)
    for x in results:
        if isinstance(x, torch.Tensor) and x.numel():
            assert x.untyped_storage().data_ptr() not in inputs
