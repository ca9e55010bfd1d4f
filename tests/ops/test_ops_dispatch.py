"""The choice of backends: swaps of some ops, refusal of missing forms, no silent fallback."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import UnsupportedError
from ninfer.ops import dispatch


def add(x: Tensor, y: Tensor) -> Tensor:
    return torch.full_like(x, 7.0)


def l2norm(x: Tensor, *, eps: float) -> Tensor:
    return torch.full_like(x, 9.0)


def mistake(x: Tensor) -> Tensor:
    return x


@pytest.fixture
def sevens() -> Iterator[None]:
    dispatch.register("sevens", add, l2norm)
    yield
    dispatch._forms.pop("sevens")


def results() -> tuple[float, float]:
    one = torch.ones(1)
    return ops.add(one, one).item(), ops.l2norm(one, eps=0.0).item()


def test_reference_is_chosen_at_first():
    assert results() == (2.0, 1.0)


@pytest.mark.usefixtures("sevens")
def test_using_swaps_one_op_and_restores_it():
    with dispatch.using("sevens", only=["add"]):
        assert results() == (7.0, 1.0)
    assert results() == (2.0, 1.0)


@pytest.mark.usefixtures("sevens")
def test_using_swaps_all_but_some():
    others = [name for name in dispatch.op_names() if name not in ("add", "l2norm")]
    with dispatch.using("sevens", without=[*others, "add"]):
        assert results() == (2.0, 9.0)
        with dispatch.using("reference"):
            assert results() == (2.0, 1.0)
        assert results() == (2.0, 9.0)


@pytest.mark.usefixtures("sevens")
def test_using_restores_after_an_error():
    with pytest.raises(RuntimeError, match="inside"), dispatch.using("sevens", only=["add"]):
        raise RuntimeError("inside")
    assert results() == (2.0, 1.0)


@pytest.mark.usefixtures("sevens")
def test_backend_without_a_form_of_some_op_is_refused():
    with pytest.raises(UnsupportedError, match=r"'sevens' has no form of .*rmsnorm"):
        dispatch.set_backend("sevens")
    assert results() == (2.0, 1.0)


def test_triton_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="backend 'triton': this version has 'reference'"):
        dispatch.set_backend("triton")
    dispatch.set_backend("reference")
    assert results() == (2.0, 1.0)


def test_names_that_are_not_ops_are_refused():
    with pytest.raises(ValueError, match="mistake is not an op"):
        dispatch.register("sevens", mistake)
    with (
        pytest.raises(ValueError, match="nonsense is not an op"),
        dispatch.using("reference", only=["nonsense"]),
    ):
        pass
    with pytest.raises(ValueError, match="come from the contracts"):
        dispatch.register("reference", add)


def test_every_exported_op_goes_through_dispatch():
    functions = {
        name
        for name in ops.__all__
        if callable(getattr(ops, name)) and not isinstance(getattr(ops, name), type)
    }
    assert functions - {"uniform", "uniform_bits", "Weight"} == set(dispatch.op_names())


def test_an_op_imported_after_the_choice_needs_a_form_in_it(monkeypatch):
    monkeypatch.setattr(dispatch, "_backend", "elsewhere")
    monkeypatch.setitem(dispatch._forms, "elsewhere", {})
    monkeypatch.setattr(dispatch, "_routes", {})

    def late_op() -> None: ...

    with pytest.raises(UnsupportedError, match="'elsewhere' has no form of late_op"):
        dispatch.Route(late_op)
