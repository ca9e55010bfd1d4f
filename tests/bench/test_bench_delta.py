"""Rows of the Gated DeltaNet: made only behind passing checks, with a baseline each."""

from dataclasses import replace
from importlib.machinery import ModuleSpec

import pytest
import torch

from ninfer.bench import delta_case, delta_rows, delta_variants
from ninfer.bench.delta_case import Mixer
from ninfer.bench.timer import Timing
from ninfer.errors import FormatError
from ninfer.ops import dispatch
from ninfer.ops.delta_net import portable as portable_delta
from ninfer.ops.delta_net.row_plan import WIDTH, row_plan
from ninfer.ops.gdn import portable
from ninfer.ops.linear.fast_plan import shared_limit

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

CPU = torch.device("cpu")
TIMING = Timing(2e-6, 1e-6, 3e-6, 5)
SMALL = {"KEY_HEADS": 1, "HEADS": 2, "WIDTH": 16, "CHANNELS": 64, "WINDOW": 3}


def first_timed(calls):
    calls[0]()
    return TIMING


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SMALL, "_CHECKED": ("decode",)}.items():
        monkeypatch.setattr(delta_case, name, value)
    for name, value in {"STEPS": (1, 3), "PREFILLS": (65,), "PARTS": (2,), "HEADS": 2}.items():
        monkeypatch.setattr(delta_rows, name, value)
    monkeypatch.setattr(delta_case, "copies_for", lambda size: 5)
    monkeypatch.setattr(delta_variants, "_mixer", Mixer.made)
    monkeypatch.setattr(delta_case, "find_spec", lambda name: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    monkeypatch.setattr(delta_rows, "replayed", first_timed)


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

    def wrong(parts, state, rows, out, plan):
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


def test_offered_variants_fit_and_begin_with_the_tables():
    assert delta_variants.VARIANTS[0].plan == row_plan(90)
    names = [variant.name for variant in delta_variants.VARIANTS]
    assert len(set(names)) == len(names)
    for plan in delta_variants.PLANS:
        assert plan.shared_bytes <= shared_limit(90) and plan.threads <= 512
        assert WIDTH // plan.pieces % (plan.threads // plan.lanes) == 0
    # The checks take bfloat16 matrices, the measurement float32 ones.
    made = [dict(program.defines) for program in delta_variants.programs(90)]
    needed = {(48, 0), (48, 1), (4, 1)}
    assert {(one["HEADS"], one["STATE_BF16"]) for one in made} == needed
    assert len(made) == len(needed) * len(delta_variants.PLANS)


def test_variants_are_timed_beside_the_first_and_failures_named():
    answers = [{1: TIMING, 4: TIMING}, None, {1: Timing(4e-6, 4e-6, 4e-6, 3)}]
    jobs = delta_variants.VARIANTS[:3]
    answered = zip(jobs, answers, ("", "its process died", ""), strict=True)
    found = delta_variants.collected("GDN step", answered)
    assert found.failures == (f"GDN step {jobs[1].name}: its process died",)
    assert [(row.shape["T"], row.share) for row in found.rows] == [(1, 1.0), (1, 2.0), (4, 1.0)]


def test_a_variant_is_checked_and_timed_in_its_own_form(monkeypatch: pytest.MonkeyPatch):
    seen = []

    def single(*parts):
        seen.append(parts[0].value.shape[0])
        portable_delta.launch_rows(*parts)

    monkeypatch.setattr(delta_variants.Variant, "single", property(lambda self: single))
    monkeypatch.setattr(delta_variants, "STEPS", (1, 3))
    monkeypatch.setattr(delta_variants, "replayed", first_timed)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(delta_variants.torch, "device", lambda *_: CPU)
    assert delta_variants.timed(delta_variants.VARIANTS[0]) == {1: TIMING, 3: TIMING}
    assert seen[-2:] == [1, 3] and len(seen) > 2


def test_chunks_are_checked_and_timed_with_other_sizes(monkeypatch: pytest.MonkeyPatch):
    seen = []
    launch = portable.whole_chunks

    def whole_chunks(parts, state, rows, out, plan):
        seen.append((parts.v.shape[0], plan))
        launch(parts, state, rows, out, plan)

    monkeypatch.setattr(portable, "whole_chunks", whole_chunks)
    monkeypatch.setattr(delta_variants, "RUNS", (64, 130))
    monkeypatch.setattr(delta_variants, "replayed", first_timed)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(delta_variants.torch, "device", lambda *_: CPU)
    variant = delta_variants.SCANS[1]
    assert delta_variants.timed_chunks(variant) == {64: TIMING, 130: TIMING}
    assert seen == [(64, variant.plan), (64, variant.plan), (130, variant.plan)]
    assert delta_variants.SCANS[0].plan == portable.scan_plan(90) != variant.plan
