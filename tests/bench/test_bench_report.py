"""Benchmark reports survive JSON, name their machine, and compare only like with like."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.bench import Findings, Report, Row, compare, run_benchmark
from ninfer.bench.machine import Machine, revision, this_machine
from ninfer.bench.report import rate_row, time_row
from ninfer.bench.timer import Timing, measure
from ninfer.errors import UsageError
from tools.performance_page import performance

MACHINE = Machine(
    device="Some CPU",
    threads=1,
    cores=2,
    system="Linux x86_64",
    python="3.11.7",
    torch="2.13.0",
    ninfer="0.1.0",
    revision="abc1234",
)
TIMING = Timing(median=0.5, fastest=0.25, slowest=1.0, repeats=3)


def report(*rows: Row) -> Report:
    return Report("formats", "2030-01-02T03:04:05+00:00", MACHINE, rows)


def test_rate_row_turns_times_into_rates():
    row = rate_row("copy", {"rows": 4}, "MB/s", 10.0, TIMING, ("memory copy", 80.0))
    assert (row.value, row.low, row.high) == (20.0, 10.0, 40.0)
    assert row.share == 0.25


def test_time_row_is_in_milliseconds():
    row = time_row("open", {"objects": 3}, TIMING, ("parse", 0.1))
    assert (row.value, row.low, row.high, row.unit) == (500.0, 250.0, 1000.0, "ms")
    assert row.share == 5.0


def test_report_survives_json_exactly():
    row = rate_row("copy", {"rows": 4, "format": "Q4"}, "MB/s", 10.0, TIMING, ("roof", 80.0))
    original = report(row, replace(row, name="other"))
    values = json.loads(original.to_json())
    assert values["schema"] == 1
    assert values["rows"][0]["reference_name"] == "roof"
    assert Report.from_json(original.to_json()) == original


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": 2}',
        '{"schema": 1, "rows": 3}',
        '{"schema": 1, "rows": [], "machine": {}}',
    ],
)
def test_other_json_is_refused(text: str):
    with pytest.raises(UsageError, match="benchmark report"):
        Report.from_json(text)


def test_row_with_a_missing_member_is_refused():
    values = json.loads(report(time_row("a", {}, TIMING, ("b", 1.0))).to_json())
    del values["rows"][0]["unit"]
    with pytest.raises(UsageError, match="Row must have"):
        Report.from_json(json.dumps(values))


def test_table_names_machine_revision_and_reference():
    lines = report(rate_row("copy", {"rows": 4}, "MB/s", 10.0, TIMING, ("roof", 80.0))).lines()
    for word in ("Some CPU", "torch 2.13.0", "abc1234", "1 of 2 cores"):
        assert word in lines[0]
    assert lines[2].split() == ["copy", "rows=4", "20", "MB/s", "25.0%", "roof"]


def test_comparison_matches_rows_and_refuses_other_machines():
    old = report(time_row("open", {"n": 1}, TIMING, ("x", 1.0)))
    faster = replace(TIMING, median=0.25)
    new = report(time_row("open", {"n": 1}, faster, ("x", 1.0)), replace(old.rows[0], name="new"))
    assert compare(old, new) == ["open n=1 [ms]: 500 -> 250 (0.500)"]
    elsewhere = replace(new, machine=replace(MACHINE, device="Other CPU"))
    with pytest.raises(UsageError, match="different devices: Some CPU then, Other CPU now"):
        compare(old, elsewhere)


def test_timer_counts_only_the_repeats():
    calls = []
    timing = measure(lambda: calls.append(0), repeats=4, warm_up=2)
    assert len(calls) == 6
    assert timing.repeats == 4
    assert 0 <= timing.fastest <= timing.median <= timing.slowest


def test_this_machine_is_described(tmp_path: Path):
    machine = this_machine()
    assert machine.device and machine.torch and machine.threads == 1
    assert revision(tmp_path) == "installed"


def test_unknown_benchmark_is_named():
    with pytest.raises(UsageError, match="unknown benchmark 'speed'; known: artifact"):
        run_benchmark("speed")


def test_kept_results_are_reports_of_a_clean_revision():
    folder = Path(__file__).resolve().parent.parent.parent / "bench" / "results"
    files = sorted(folder.glob("*.json"))
    assert files
    for file in files:
        kept = Report.from_json(file.read_text(encoding="utf-8"))
        assert kept.rows and file.stem.startswith(kept.benchmark)
        assert not kept.machine.revision.endswith("-dirty"), file.name


def test_microseconds_and_their_share():
    row = time_row("product", {"T": 8}, TIMING, ("T=1", 0.4), unit="us")
    assert (row.value, row.reference, row.unit) == (500_000.0, 400_000.0, "us")
    assert "1.2x" in report(row).lines()[-1]


def test_a_failed_part_is_named_and_has_no_figure():
    row = rate_row("copy", {"rows": 4}, "TB/s", 10.0, TIMING, ("roof", 80.0))
    found = Findings([row], "random weights, no text", ("Q4 is wrong; not timed",))
    made = Report.now("ops", MACHINE, found)
    assert Report.from_json(made.to_json()) == made
    lines = made.lines()
    assert lines[1] == "random weights, no text"
    assert lines[-1] == "CHECK FAILED: Q4 is wrong; not timed"
    plain = json.loads(report(row).to_json())
    del plain["note"], plain["failures"]
    assert Report.from_json(json.dumps(plain)) == report(row)


def test_the_page_of_rates_shows_note_values_and_failures(tmp_path: Path):
    assert performance(tmp_path) is None
    row = rate_row("linear Q4", {"T": 1}, "TB/s", 2.0, TIMING, ("memory read", 5.0))
    found = Findings([row], "random weights, no text", ("Q5 is wrong; not timed",))
    folder = tmp_path / "bench" / "results"
    folder.mkdir(parents=True)
    (folder / "ops.json").write_text(Report.now("ops", MACHINE, found).to_json())
    text = performance(tmp_path)
    assert text is not None
    assert "random weights, no text." in text
    assert "| linear Q4 | T=1 | 4 TB/s | 2..8 | 80% of memory read |" in text
    assert "check failed, no figure: Q5 is wrong; not timed" in text
