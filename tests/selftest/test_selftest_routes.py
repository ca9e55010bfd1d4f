"""The self-test finds a wrong op, names it, and gives margins that mean what they say."""

import json
from pathlib import Path

import pytest
import torch

from ninfer.cli.main import main
from ninfer.ops import cases, dispatch
from ninfer.ops.norm.reference import rmsnorm
from ninfer.ops.tolerance import BF16
from ninfer.selftest.routes import forms, routes

CPU = torch.device("cpu")


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch):
    """A form of rmsnorm that is a little wrong."""

    def make(factor: float) -> None:
        def wrong(x, *rest, **more):  # as the reference
            return rmsnorm(x, *rest, **more) * (factor if x.dtype is not torch.float64 else 1)

        monkeypatch.setitem(dispatch._forms["reference"], "rmsnorm", wrong)

    return make


def test_a_right_op_takes_part_of_its_bound():
    found = list(routes(CPU, ["rmsnorm"], 0))
    assert [(v.form, v.dtype) for v in found] == [
        ("reference", "float32"),
        ("reference", "bfloat16"),
    ]
    assert all(v.cases > 0 and not v.wrong and not v.refused for v in found)
    assert 0 < found[1].margin <= 1


def test_a_wrong_op_is_named_and_passes_its_bound(spoiled):
    spoiled(1.05)
    for verdict in routes(CPU, ["rmsnorm"], 0):
        assert verdict.wrong and verdict.wrong[0].startswith("rmsnorm-") and verdict.margin > 1


def test_the_page_and_the_status(tmp_path: Path, capsys: pytest.CaptureFixture[str], spoiled):
    page = tmp_path / "page.md"
    assert main(["selftest", "--op", "rmsnorm", "--page", str(page)]) == 0
    assert "| rmsnorm | reference | bfloat16 |" in page.read_text()
    assert "2 routes, 0 wrong" in page.read_text()
    spoiled(1.05)
    capsys.readouterr()
    assert main(["selftest", "--op", "rmsnorm", "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert values["machine"]["torch"] == torch.__version__ and len(values["ops"]) == 2


def test_an_op_that_is_none(capsys: pytest.CaptureFixture[str]):
    assert main(["selftest", "--op", "nonsense"]) == 2
    assert "--op nonsense: no such op; known: " in capsys.readouterr().err


def test_every_op_has_cases():
    assert {case.op.__name__ for case in cases.ALL_CASES} == set(dispatch.op_names())


def test_a_processor_has_the_reference_alone():
    assert forms(CPU, "paged_attention") == ["reference"]


def test_the_share_of_a_bound():
    want = torch.ones(64, dtype=torch.float64)
    assert BF16.share(want, want) == 0
    off = want * (1 + BF16.norm / 2)
    assert BF16.share(off, want) == pytest.approx(0.5)
    assert BF16.share(want * (1 + 2 * BF16.norm), want) == pytest.approx(2)
