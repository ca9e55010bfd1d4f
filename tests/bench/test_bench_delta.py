"""Rows of the Gated DeltaNet: made only behind passing checks, with a baseline each."""

from dataclasses import replace
from importlib.machinery import ModuleSpec

import pytest
import torch

from ninfer.bench import delta_case, delta_rows
from ninfer.bench.delta_case import Mixer
from ninfer.bench.timer import Timing
from ninfer.errors import FormatError
from ninfer.ops import dispatch
from ninfer.ops.gdn import portable

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

CPU = torch.device("cpu")
TIMING = Timing(2e-6, 1e-6, 3e-6, 5)
SMALL = {"KEY_HEADS": 1, "HEADS": 2, "WIDTH": 16, "CHANNELS": 64, "WINDOW": 3}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SMALL, "_CHECKED": ("decode",)}.items():
        monkeypatch.setattr(delta_case, name, value)
    for name, value in {"STEPS": (1, 3), "PREFILLS": (65,), "PARTS": (2,), "HEADS": 2}.items():
        monkeypatch.setattr(delta_rows, name, value)
    monkeypatch.setattr(delta_case, "copies_for", lambda size: 5)
    monkeypatch.setattr(delta_case, "find_spec", lambda name: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def replayed(calls):
        calls[0]()
        return TIMING

    monkeypatch.setattr(delta_rows, "replayed", replayed)


def test_every_row_has_a_baseline():
    rows = delta_rows.delta_rows(CPU, 4.0)
    names = ["GDN step"] * 4 + ["GDN prefill", "GDN chunks", "GDN convolution", "GDN gates"]
    assert [row.name for row in rows] == names
    assert {row.unit for row in rows} == {"us", "TB/s"}
    assert all(row.reference > 0 and row.reference_name for row in rows)
    step = next(row for row in rows if row.unit == "TB/s")
    assert step.value == pytest.approx(delta_case.state_bytes(1) / 1e12 / 2e-6)


def test_the_other_kernel_is_the_baseline_where_it_is_installed(monkeypatch: pytest.MonkeyPatch):
    seen = []

    def chunk_gated_delta_rule(q, k, v, g, beta, *, output_final_state):
        seen.append((q.shape, k.shape, v.shape, output_final_state))

    monkeypatch.setattr(delta_case, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setattr(delta_case, "_fla", lambda name: chunk_gated_delta_rule)
    with dispatch.using("portable", only=delta_case.FAMILY):
        rows = delta_rows.prefill_rows(Mixer.made(CPU))
    assert rows[1].reference_name == "flash-linear-attention"
    assert seen == [((1, 65, 2, 16),) * 3 + (True,)]


def test_a_wrong_prefill_has_no_row(monkeypatch: pytest.MonkeyPatch):
    right = portable.whole_chunks

    def wrong(parts, state, rows, out):
        right(replace(parts, beta=parts.beta * 1.01), state, rows, out)

    monkeypatch.setattr(portable, "whole_chunks", wrong)
    monkeypatch.setattr(delta_rows, "replayed", lambda calls: pytest.fail("timed"))
    with dispatch.using("portable", only=delta_case.FAMILY):
        mixer = Mixer.made(CPU)
        with pytest.raises(FormatError, match=r"gated_delta_rule of 65 rows: .*; not timed"):
            delta_rows.prefill_rows(mixer)


def test_a_wrong_step_has_no_row(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delta_case, "compare", lambda *_: ["delta_net-decode: result: wrong"])
    monkeypatch.setattr(delta_rows, "replayed", lambda calls: pytest.fail("timed"))
    with pytest.raises(FormatError, match="result: wrong; not timed"):
        delta_rows.delta_rows(CPU, 4.0)
