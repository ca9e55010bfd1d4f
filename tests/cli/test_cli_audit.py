"""`ninfer audit`: tables, JSON, page, exit status."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.audit import ResponseFile, StoredResponse, Timings, TokenCounts
from ninfer.cli.main import main

GOOD = StoredResponse(
    "f",
    "<b>fine</b>",
    "stop",
    category="c",
    usage=TokenCounts(1, 11),
    timings=Timings(total=2.0, first=1.0),
)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    with ResponseFile(path) as file:
        file.add(GOOD)
        file.add(replace(GOOD, fixture="g", text="x<i> y" * 400, finish_reason="length"))
    return path


def test_tables_and_exit_status(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(stored)]) == 0
    out = capsys.readouterr().out
    assert "1 of 2 responses are usable; 1 LOOP" in out and "[10.0, a loop]" in out
    assert main(["audit", str(stored), "--fail-under", "50"]) == 0
    assert main(["audit", str(stored), "--fail-under", "50.1"]) == 1
    capsys.readouterr()
    assert main(["audit", str(stored), str(stored), "--json", "--by", "fixture"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in values["groups"]] == ["f", "g", "all"]
    assert len(values["responses"]) == 4


def test_the_page_is_whole_and_shows_texts_as_text(stored: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    assert main(["audit", str(stored), "--html", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "1 of 2 responses are usable; 1 LOOP" in text and "<svg" in text
    assert "x&lt;i&gt; y" in text and "<i> y" not in text
    assert "http" not in text.replace("http-equiv", "") and "<script" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fail-under", "101"], "--fail-under 101.0: must be 0..100"),
        (["--html", "/nowhere/a.html"], "--html /nowhere/a.html: the folder does not exist"),
        (["--by", "colour"], "--by colour: must be one of category, fixture"),
    ],
)
def test_wrong_options_are_refused(
    stored: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status = main(["audit", str(stored), *arguments])
    assert status == 2 and message in capsys.readouterr().err


def test_tables_as_markdown_hold_no_markup_of_a_model(stored: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    with ResponseFile(stored) as file:
        contract = {"kind": "text", "equals": "x"}
        file.add(replace(GOOD, fixture="h", text="a|b\n*c* <i>[d](e)", contract=contract))
    assert main(["audit", str(stored), "--markdown", str(page)]) == 0
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("1 of 3 responses are usable; ")
    assert "## By category" in lines and "## Not usable" in lines
    rows = [line for line in lines if line.startswith("| h ")]
    assert len(rows) == 1 and r"a\|b" in rows[0] and r"\*c\* &lt;i>\[d" in rows[0]
    cells = {line.replace(r"\|", "").count("|") for line in lines if line.startswith("|")}
    assert cells == {12, 6}
