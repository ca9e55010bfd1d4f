"""`ninfer bench compare`: pairs of two files, their gains, and files that cannot be paired."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.audit import Drafts, ResponseFile, StoredResponse, Timings, TokenCounts
from ninfer.cli.main import main


def one(seed: int, rate: float, **changes: object) -> StoredResponse:
    response = StoredResponse(
        "f",
        f"answer {seed}",
        "stop",
        category="c",
        seed=seed,
        usage=TokenCounts(1, 101),
        timings=Timings(total=100 / rate, first=0.0),
    )
    return replace(response, **changes)


def stored(path: Path, *responses: StoredResponse) -> str:
    with ResponseFile(path) as file:
        for response in responses:
            file.add(response)
    return str(path)


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    plain = [one(seed, 10, mode="plain") for seed in range(6)]
    drafted = [one(seed, 15, mode="mtp3", drafts=Drafts(9, 27, 9)) for seed in range(1, 6)]
    drafted[0] = replace(drafted[0], text="again " * 300, finish_reason="length")
    drafted[1] = replace(drafted[1], finish_reason="length")
    return [stored(tmp_path / "plain.jsonl", *plain), stored(tmp_path / "mtp.jsonl", *drafted)]


def test_pairs_and_gains(
    two: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "c.html"
    assert main(["bench", "compare", *two, "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert "mtp : plain" in out and "1.50x" in out and "33%" in out
    assert "1 responses have no partner" in out
    assert "5 pairs, 3 usable twice, 2 only in plain, 0 only in mtp" in out
    assert "4 with the same text" in out and "over 3 pairs usable twice" in out
    text = page.read_text(encoding="utf-8")
    assert "mtp against plain" in text and text.count("<circle") == 3
    assert main(["bench", "compare", *two, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["pairs"] == 5 and values["gains"][0]["ratio"]["count"] == 3


def test_several_modes_are_paired_mode_by_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        stored(tmp_path / f"{name}.jsonl", *(one(1, rate, mode=mode) for mode in ("plain", "mtp3")))
        for name, rate in (("old", 10.0), ("new", 20.0))
    ]
    assert main(["bench", "compare", *files, "--by", "mode"]) == 0
    out = capsys.readouterr().out
    assert "2 pairs, 2 usable twice" in out and out.count("2.00x") == 3


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([one(1, 1)], [one(2, 1)], "a and b: no response to the same question"),
        ([one(1, 1), one(1, 2, mode="x")], [one(1, 1, mode="y")], "no response to the same"),
        ([one(1, 1)], [one(1, 1, contract={"kind": "text", "equals": "x"})], "another in b"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    first: list[StoredResponse],
    second: list[StoredResponse],
    message: str,
) -> None:
    paths = [stored(tmp_path / "a.jsonl", *first), stored(tmp_path / "b.jsonl", *second)]
    assert main(["bench", "compare", *paths]) == 2
    assert message in capsys.readouterr().err


def test_a_question_that_stands_twice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path / "a.jsonl", one(1, 1), one(1, 1))
    assert main(["bench", "compare", path, path]) == 2
    assert "f with seed 1 stands twice" in capsys.readouterr().err
