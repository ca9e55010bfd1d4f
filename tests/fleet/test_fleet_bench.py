"""`ninfer bench box`: the server's own figures over its loopback, their cost, and the audit."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ninfer.audit import StoredResponse, TokenCounts, judge, read_responses
from ninfer.audit.record import Drafts, Timings
from ninfer.cli import main
from ninfer.errors import ServerError, UsageError
from ninfer.fleet.bench_options import parse_streams
from ninfer.fleet.box import Ran
from ninfer.fleet.own import LocalBox
from ninfer.fleet.speed import DEFAULT, GREEDY, find_model, row_of, run_here, run_on
from tests.fleet.ssh_server import SshServer
from tests.fleet.test_fleet_cli import Call, box, call
from tests.server.serving import END, Server, serving

__all__ = ["box", "call"]

SECRET = "bench-secret-4711"
GOOD = "A bridge stands because every part of it hands its load on to the ground."


@pytest.fixture(scope="module")
def server(micro_artifacts: dict[str, Path]) -> Iterator[Server]:
    """Writes a good essay, except that the second of two turns in a circle."""
    engine = {"spec": "mtp", "draft_tokens": 3, "adaptive_drafts": False}
    keys = (SECRET,)
    with serving(micro_artifacts["dense"], engine=engine, api_key=keys) as made:
        made.scripts.texts |= {"Essay 2 of 2": "so\n" * 60, "Essay": GOOD + END}
        yield made


def bench(server: Server, *arguments: object) -> int:
    return main(["bench", "1,2", "--server", server.url, *map(str, arguments)])


def test_rows_files_and_verdict(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NINFER_API_KEY", SECRET)
    monkeypatch.setenv("NINFER_PROJ", str(tmp_path))
    out = tmp_path / "report.json"
    arguments = ["--tokens", "90", "--price", "0.36", "-o", out]
    assert bench(server, *arguments, "--fail-under", "70") == 1, "4 of 6 are fewer"
    captured = capsys.readouterr()
    assert SECRET not in captured.out + captured.err + out.read_text()
    report = json.loads(out.read_text())
    rows = report["rows"]
    assert [(row["sampling"], row["streams"]) for row in rows] == [
        *((DEFAULT, 1), (DEFAULT, 2), (GREEDY, 1), (GREEDY, 2))
    ]
    responses = read_responses(out.with_suffix(".jsonl"))
    assert len(responses) == 6 and len({response.key for response in responses}) == 6
    assert [("temperature" in r.request) for r in responses] == [False] * 3 + [True] * 3
    for row in rows:
        mine = [
            r
            for r in responses
            if r.sampling == row["sampling"] and r.case == f"{row['streams']} streams"
        ]
        good = [r for r in mine if judge(r).usable]
        assert row["tokens"] == sum(r.usage.completion or 0 for r in mine)
        assert row["aggregate"] == pytest.approx(row["tokens"] / row["wall"])
        rates = [r.decode_rate or 0.0 for r in mine]
        assert all(rates) and row["per_stream"] == pytest.approx(sum(rates) / len(rates))
        assert row["wall"] >= max(r.timings.decode or 0 for r in mine)
        assert row["usable"] == len(good) == 1, [r.text[:300] for r in mine]
        usable = sum(r.usage.completion or 0 for r in good) / row["wall"]
        assert row["cost"] == pytest.approx(0.36 / 3600 / usable * 1e6)
        assert 0 <= row["acceptance"] <= 1 and 1 <= row["tokens_per_round"] <= 4
    assert [row["scaling"] for row in rows[::2]] == [1, 1]
    assert rows[1]["scaling"] == pytest.approx(rows[1]["aggregate"] / rows[0]["aggregate"])
    assert "LOOP" in captured.out and "4 of 6 responses are usable" in captured.out
    # What is stored is what the server counted.
    assert main(["audit", str(out.with_suffix(".jsonl"))]) == 0
    assert "4 of 6 responses are usable" in capsys.readouterr().out


def test_being_cut_at_the_asked_length_is_not_held_against_an_answer() -> None:
    cut = StoredResponse(
        *("f", GOOD, "length"), request={"max_tokens": 9}, usage=TokenCounts(5, 9), cut=True
    )
    assert judge(cut).usable
    assert judge(replace(cut, cut=False)).word == "output limit"
    assert judge(replace(cut, usage=TokenCounts(5, 7))).word == "context full"
    assert judge(replace(cut, text="")).word == "empty"


def test_the_key_is_asked_for_by_its_name(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NINFER_PROJ", str(tmp_path))
    monkeypatch.delenv("NINFER_API_KEY", raising=False)
    assert bench(server) == 1
    assert "401" in capsys.readouterr().err
    monkeypatch.setenv("OTHER_KEY", SECRET)
    assert bench(server, "--key-env", "OTHER_KEY", "--tokens", "2", "--fail-under", "1") == 0


def test_on_the_machine_over_its_loopback(
    server: Server, call: Call, box: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine runs the burst: its python, its loopback; the key by its input alone."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NINFER_API_KEY", SECRET)
    host = f"somebody@127.0.0.1:{box.port}"
    assert call("create", "--bare", "--provider", "ssh", "--host", host)[0] == 0
    before = len(box.commands)
    status, out, err = call("bench", "1,2", "--port", str(server.port), "--tokens", "5")
    assert status == 0, err
    assert set(box.commands[before:]) - {"python3 -"} == {
        command for command in box.commands[before:] if "machines" in command
    }, "nothing else runs there"
    assert not any(SECRET in command for command in box.commands)
    assert "tok/s in all" in out and "responses are usable" in out
    (saved,) = (tmp_path / "project" / ".ninfer-fleet" / "bench").glob("*.json")
    report = json.loads(saved.read_text())
    assert report["machine"] == "box" and report["dollars_per_hour"] is None
    assert [row["cost"] for row in report["rows"]] == [None] * 4, "nobody knows what it costs"
    assert call("destroy")[0] == 0


def response(tokens: int, decode: float, text: str = GOOD) -> StoredResponse:
    return StoredResponse(
        *("f", text, "stop"),
        sampling=GREEDY,
        usage=TokenCounts(5, tokens),
        timings=Timings(decode=decode),
    )


def test_arithmetic() -> None:
    """Tokens over the burst, not the mean of rates; unusable tokens cost and do not count."""
    verdicts = [judge(response(101, 2.0)), judge(response(301, 3.0)), judge(response(1, 0.0, ""))]
    row = row_of(verdicts, Drafts(rounds=100, drafted=300, accepted=150), 4.0, None, 0.9)
    assert (row.streams, row.answered, row.usable, row.tokens) == (3, 3, 2, 403)
    assert row.per_stream == 75 and row.aggregate == 100.75 and row.usable_rate == 100.5
    assert (row.tokens_per_round, row.acceptance, row.scaling) == (2.5, 0.5, 1)
    assert row.cost == pytest.approx(0.9 / 3600 / 100.5 * 1e6)
    twice = row_of(verdicts, None, 2.0, row, None)
    assert twice.scaling == 2 and twice.cost is None and twice.acceptance is None
    nothing = row_of([judge(response(1, 0.0, ""))], None, 1.0, None, 0.9)
    assert nothing.cost is None and nothing.per_stream is None


def test_an_answer_that_does_not_come_is_an_error_and_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NINFER_PROJ", str(tmp_path))
    with pytest.raises(ServerError, match="no server answers"):
        find_model(run_here, "http://127.0.0.1:9", "", 5)
    out = tmp_path / "r.json"
    gone = ["bench", "2", "--server", "http://127.0.0.1:9", "--model", "m", "-o", str(out)]
    assert main(gone) == 1
    assert "0 of 4 responses are usable" in capsys.readouterr().out
    (first, *_) = read_responses(out.with_suffix(".jsonl"))
    assert first.error is not None and first.error.startswith("no answer")
    assert [row["answered"] for row in json.loads(out.read_text())["rows"]] == [0, 0]


@pytest.mark.parametrize(
    ("ran", "said"),
    [(Ran(127, "", "python3: not found"), "not found"), (Ran(0, "no JSON", ""), "no JSON")],
)
def test_a_machine_that_cannot_run_the_burst_says_why(ran: Ran, said: str) -> None:
    class Box(LocalBox):
        def run(self, command: str, *, stdin: str | bytes = "", timeout: float = 60.0) -> Ran:
            return ran

    with pytest.raises(ServerError, match=said):
        find_model(run_on(Box(), 5), "http://127.0.0.1:9", "", 5)


def test_both_ways_to_run_an_order_are_one(server: Server) -> None:
    order: dict[str, Any] = {
        "root": server.url,
        "key": SECRET,
        "seconds": 30,
        "pages": ["/health"],
        "bodies": [
            {
                "messages": [{"role": "user", "content": f"Essay {number}"}],
                "max_tokens": 50,
                "chat_template_kwargs": {"enable_thinking": False},
            }
            for number in (1, 2)
        ],
    }
    here, there = run_here(order), run_on(LocalBox(), 30)(order)
    texts = [
        [json.loads(answer["text"])["choices"][0]["message"]["content"] for answer in found]
        for found in (here["answers"], there["answers"])
    ]
    assert texts[0] == texts[1] == [GOOD, GOOD]
    assert here["before"]["/health"][0] == httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.parametrize("text", ["", "0", "1,,2", "1,1", "-1", "1,999", "²", "1;2"])
def test_streams_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="streams"):
        parse_streams(text)
    assert parse_streams("4, 1,2") == (4, 1, 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["1,1"], "each once"),
        (["--tokens", "1"], "--tokens 1"),
        (["--price", "-1"], "--price -1"),
        (["--fail-under", "101"], "--fail-under 101"),
        (["--seconds", "0"], "--seconds 0"),
        (["--port", "0"], "--port 0"),
        (["--output", "/nowhere/x.json"], "/nowhere"),
        (["--on", "box", "--server", "localhost:1"], "one of them"),
    ],
)
def test_options_are_checked_before_anything_is_asked(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "box", *arguments]) == 2
    assert said in capsys.readouterr().err
