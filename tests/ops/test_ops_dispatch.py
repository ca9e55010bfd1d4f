"""The choice of backends: swaps of some ops, refusal of missing forms, no silent fallback."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ninfer import ops
from ninfer.errors import UnsupportedError
from ninfer.formats import quantise
from ninfer.ops import dispatch
from ninfer.ops.tiers import PORTABLE


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
def test_form_that_some_op_lacks_is_refused():
    with (
        pytest.raises(UnsupportedError, match=r"'sevens' has no form of .*rmsnorm"),
        dispatch.using("sevens"),
    ):
        pass
    assert results() == (2.0, 1.0)


def test_unknown_backend_and_card_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="'sevens': this version has 'reference' and 'tri"):
        dispatch.set_backend("sevens")
    for architecture, seen in ((75, "no kernels for sm_75"), (None, "no kernels for sm_none")):
        with pytest.raises(UnsupportedError, match=seen):
            dispatch.set_backend("triton", architecture)
    assert results() == (2.0, 1.0)


@pytest.fixture
def restored() -> Iterator[None]:
    yield
    dispatch.set_backend("reference")


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
@pytest.mark.usefixtures("restored")
def test_a_card_gets_the_best_tier_of_each_op_and_says_so():
    choice = dispatch.set_backend("triton", 90)
    assert {op for op, form in choice.items() if form == "portable"} == PORTABLE.ops
    assert set(choice) == set(dispatch.op_names())
    words = dispatch.forms_in_words(choice)
    others = sorted(set(dispatch.op_names()) - PORTABLE.ops)
    assert words == f"portable: {', '.join(sorted(PORTABLE.ops))}; reference: {', '.join(others)}"
    stored = quantise(torch.randn(16, 64), "Q4G64_F16S")
    with pytest.raises(UnsupportedError, match="stored planes"):
        ops.linear(torch.ones(1, 64), stored)
    resident = ops.resident(stored)
    assert resident is not stored and ops.linear(torch.ones(1, 64), resident).shape == (1, 16)
    dispatch.set_backend("reference")
    assert ops.resident(stored) is stored


@pytest.mark.usefixtures("restored")
def test_an_op_whose_tier_lacks_its_form_is_refused_before_anything_changes(monkeypatch):
    with dispatch.using("portable", only=["add"]):
        monkeypatch.delitem(dispatch._forms["portable"], "add")
    with pytest.raises(UnsupportedError, match="'portable' has no form of add"):
        dispatch.set_backend("triton", 90)
    stored = quantise(torch.randn(16, 64), "Q4G64_F16S")
    assert ops.linear(torch.ones(1, 64), stored).shape == (1, 16)


def test_missing_triton_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.delitem(dispatch._forms, "portable", raising=False)
    monkeypatch.delitem(sys.modules, "ninfer.ops.portable", raising=False)
    monkeypatch.delattr(ops, "portable", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    for name in (
        "ninfer.ops.launch",
        "ninfer.ops.linear.portable",
        "ninfer.ops.embedding.portable",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(UnsupportedError, match="the triton package is missing; pip install triton"):
        dispatch.set_backend("triton", 90)
    assert results() == (2.0, 1.0)


def test_the_package_imports_without_triton():
    code = "import sys; sys.modules['triton'] = None; import ninfer.engine, ninfer.ops.tiers"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


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
    assert functions - {"resident", "uniform", "uniform_bits", "Weight"} == set(dispatch.op_names())


def test_an_op_imported_after_the_choice_needs_a_form_in_it(monkeypatch):
    monkeypatch.setattr(dispatch, "_chosen", lambda op: "elsewhere")
    monkeypatch.setitem(dispatch._forms, "elsewhere", {})
    monkeypatch.setattr(dispatch, "_routes", {})

    def late_op() -> None: ...

    with pytest.raises(UnsupportedError, match="'elsewhere' has no form of late_op"):
        dispatch.Route(late_op)
