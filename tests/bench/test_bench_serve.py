"""The load generator: plan, driving, figures; on a scripted server and on our own."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ninfer.audit import StoredResponse, TokenCounts, judge, read_responses
from ninfer.bench import Report
from ninfer.bench.serve import (
    Arrival,
    Objective,
    Served,
    ServeLoadOptions,
    Texts,
    check_load,
    drive,
    figures_of,
    plan_load,
    transport,
)
from ninfer.bench.serve.figures import percentile
from ninfer.bench.serve.options import TransportOptions, check_transport
from ninfer.bench.serve.transport import Run, measure_transport, serving_process
from ninfer.cli.main import main
from ninfer.engine import EngineOptions
from ninfer.errors import ServerError, UsageError
from ninfer.options import arguments_of
from tests.client.scripted import ScriptedRequest, delta, finish
from tests.client.scripted import scripted_server as scripted_server
from tests.server.serving import END, serving

STORY = "The river ran past the mill, and a small boat lay by the white wall in the morning sun."


def options(tmp_path: Path, **changes: Any) -> ServeLoadOptions:
    base = ServeLoadOptions(server="localhost:1", output=tmp_path / "out.jsonl")
    return replace(base, **changes)


def test_a_plan_is_the_same_for_the_same_options(tmp_path: Path) -> None:
    asked = options(
        tmp_path, requests=400, rate=50.0, prompt_tokens="100:3,400:1", output_tokens="8,16"
    )
    plan = plan_load(asked)
    assert plan == plan_load(asked) != plan_load(replace(asked, seed=1))
    sizes = [one.prompt_tokens for one in plan]
    assert set(sizes) == {100, 400} and 250 < sizes.count(100) < 350
    assert {one.output_tokens for one in plan} == {8, 16}
    assert len({one.seed for one in plan}) == 400
    times = [one.due for one in plan if one.due is not None]
    assert times[0] == 0 and times == sorted(times)
    gaps = [b - a for a, b in pairwise(times)]
    # Exponential gaps deviate by as much as their mean; constant ones do not at all.
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert 0.018 < mean < 0.022 and 0.8 < spread / mean < 1.2
    steady = plan_load(replace(asked, arrival="constant"))
    assert steady[10].due == pytest.approx(0.2)
    assert {one.due for one in plan_load(replace(asked, rate=None))} == {None}


def test_prompts_share_what_was_asked_and_no_more(tmp_path: Path) -> None:
    asked = options(tmp_path, requests=40, prompt_tokens="200", shared_prefix=80, prefix_groups=2)
    texts = Texts(asked, tokens_a_word=2.0, frame=10.0)
    plan = plan_load(asked)
    words = [texts.prompt(one).split() for one in plan]
    assert {len(one) for one in words} == {95}
    beginnings = {one.group: tuple(two[:40]) for one, two in zip(plan, words, strict=True)}
    assert len(set(beginnings.values())) == 2
    for one, two in zip(plan, words, strict=True):
        assert tuple(two[:40]) == beginnings[one.group]
    assert len({tuple(one[40:60]) for one in words}) == 40


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server": None}, "--server URL is missing"),
        ({"output": None}, "--output FILE is missing"),
        ({"concurrency": 0}, "--concurrency 0: must be 1..1024"),
        ({"requests": 0}, "--requests 0: must be 1 or more"),
        ({"rate": 0.0}, "--rate 0.0: must be positive"),
        ({"rate": float("nan")}, "--rate nan: must be positive"),
        ({"arrival": "bursts"}, "--arrival bursts: must be one of poisson, constant"),
        ({"prompt_tokens": "12:"}, "--prompt-tokens '12:': must be a size"),
        ({"prompt_tokens": "64,0"}, "--prompt-tokens '64,0'"),
        ({"output_tokens": ""}, "--output-tokens ''"),
        ({"shared_prefix": 512}, "--shared-prefix 512: must be less than the smallest prompt, 512"),
        ({"ttft_ms": -1.0}, "--ttft-ms -1.0: must be positive"),
        ({"temperature": 3.0}, "--temperature 3.0: must be 0..2"),
    ],
)
def test_a_wrong_load_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_load(options(tmp_path, **changes))
    assert str(caught.value).startswith(message)


def test_two_runs_do_not_go_into_one_file(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="is there already"):
        check_load(options(tmp_path))


class World:
    """A time that only passes where somebody waits for it; for one worker."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def answered(
    arrival: Arrival,
    due: float,
    sent: float,
    pieces: tuple[float, ...],
    tokens: int | None,
    text: str = STORY,
    reason: str = "stop",
    error: str | None = None,
) -> Served:
    response = StoredResponse("load", text, reason, error=error, usage=TokenCounts(10, tokens))
    ended = pieces[-1] if pieces else sent
    return Served(arrival, due, sent, ended, pieces, tokens, response)


def test_what_piles_up_counts_as_waiting() -> None:
    """One place, an answer takes a second, two arrive in one: the last waits for the others."""
    world = World()

    def ask(arrival: Arrival, due: float, clock: Callable[[], float]) -> Served:
        sent = clock()
        world.now += 1.0
        return answered(arrival, due, sent, (world.now,), 1)

    plan = [Arrival(n, n / 2, 8, 8, 0, n) for n in range(5)]
    served = drive(plan, ask, 1, since_start=world, sleep=world.sleep)
    assert [one.sent for one in served] == [0, 1, 2, 3, 4]
    assert [one.ttft for one in served] == [1, 1.5, 2, 2.5, 3]
    # Where nothing was due, waiting for a place is nobody's time.
    world.now = 0.0
    free = drive([replace(one, due=None) for one in plan], ask, 1, since_start=world)
    assert [one.ttft for one in free] == [1, 1, 1, 1, 1]
    # A server that keeps up gets each when it is due.
    world.now = 0.0
    slow = [replace(one, due=3.0 * one.number) for one in plan]
    steady = drive(slow, ask, 1, since_start=world, sleep=world.sleep)
    assert [one.sent for one in steady] == [0, 3, 6, 9, 12]


def test_places_bound_what_is_under_way_and_are_all_used() -> None:
    barrier, lock, now = threading.Barrier(3), threading.Lock(), [0, 0]

    def ask(arrival: Arrival, due: float, clock: Callable[[], float]) -> Served:
        with lock:
            now[0] += 1
            now[1] = max(now)
        barrier.wait(60)  # nobody goes on before three are here
        with lock:
            now[0] -= 1
        return answered(arrival, due, due, (due,), 1)

    plan = [Arrival(n, None, 8, 8, 0, n) for n in range(9)]
    served = drive(plan, ask, 3)
    assert sorted(one.arrival.number for one in served) == list(range(9)) and now[1] == 3


def test_an_error_of_our_own_ends_the_load() -> None:
    asked: list[int] = []

    def ask(arrival: Arrival, due: float, clock: Callable[[], float]) -> Served:
        asked.append(arrival.number)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive([Arrival(n, None, 8, 8, 0, n) for n in range(50)], ask, 1)
    assert asked == [0]


def test_percentiles_lie_between_ranks() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile([1.0, 2.0], 90) == pytest.approx(1.9)
    assert percentile([7.0], 99) == 7.0


def test_figures_of_a_load_by_hand() -> None:
    plan = [Arrival(n, float(n), 8, 4, 0, n) for n in range(5)]
    loop = "once more " * 400
    served = [
        answered(plan[0], 0.0, 0.0, (1.0, 1.5, 2.0), 3),
        answered(plan[1], 1.0, 1.25, (2.0, 4.0, 6.0), 5, reason="length"),
        answered(plan[2], 2.0, 2.0, (), None, "", "error", "connection broke"),
        answered(plan[3], 3.0, 3.0, (3.5, 4.0, 4.5), 3, loop),
        answered(plan[4], 4.0, 4.0, (10.0,), 1),
    ]
    verdicts = [judge(one.response) for one in served]
    assert [v.usable for v in verdicts] == [True, False, False, False, True]
    found = figures_of(served, verdicts, Objective(ttft=1.0, tpot=0.5))
    assert found.seconds == 10.0 and found.failed == 1 and found.usable == 2
    assert found.ttft is not None and found.ttft.count == 4 and found.ttft.most == 6.0
    assert found.ttft.mean == pytest.approx((1 + 1 + 0.5 + 6) / 4)
    assert found.tpot is not None and found.tpot.count == 3 and found.tpot.most == 1.0
    assert found.gap is not None and found.gap.count == 6 and found.gap.most == 2.0
    assert found.late is not None and found.late.most == 0.25
    # The first is in time; the second's tokens are late, the fourth is a loop, the fifth waits.
    assert found.good == 1 and found.goodput == pytest.approx(0.1)
    # An answer cut by the limit that the load set is none the worse, a fast loop is no goodput.
    assert figures_of(served, verdicts, Objective()).good == 3
    shown = found.to_json()
    assert shown["output_tokens_per_second"] == pytest.approx(1.2)
    assert shown["usable_output_tokens_per_second"] == pytest.approx(0.4)
    assert "1.2 tok/s over all, 0.4 tok/s of usable" in found.lines()[1]


def test_a_load_on_a_server_of_the_bare_protocol(
    scripted_server: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies: list[Any] = []

    def script(request: ScriptedRequest) -> None:
        if request.path == "/v1/models":
            request.reply({"data": [{"id": "other"}]})
            return
        bodies.append(request.body)
        text = request.body["messages"][0]["content"]
        count = 5 + 2 * len(text.split())
        usage = {"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": 4}}
        if request.body["seed"] % 3 == 0 and request.body["max_tokens"] > 1:
            request.reply({"error": {"message": "too busy"}}, 503)
            return
        words = [delta(content=f"{word} ") for word in STORY.split()]
        request.stream(*words, finish(), usage, "[DONE]")

    server = scripted_server(script)
    out, record = tmp_path / "out.jsonl", tmp_path / "record.json"
    load = ["bench", "serve", "--server", server.root, "--output", str(out), "--no-extensions"]
    load += ["--requests", "12", "--concurrency", "3", "--rate", "500", "--prompt-tokens", "105"]
    assert main([*load, "--record", str(record), "--ttft-ms", "600000", "--temperature", "0"]) == 0
    sent = bodies[2:]
    assert len(sent) == 12 and {len(one["messages"][0]["content"].split()) for one in sent} == {50}
    assert all("return_token_ids" not in one and one["temperature"] == 0 for one in sent)
    failed = sum(one["seed"] % 3 == 0 for one in sent)
    assert 0 < failed < 12
    values = json.loads(record.read_text())
    figures = values["figures"]
    assert (figures["requests"], figures["failed"], figures["good"]) == (12, failed, 12 - failed)
    assert figures["output_tokens"] == 4 * (12 - failed)
    assert len(values["requests"]) == 12 and values["options"]["rate"] == 500
    assert all(r["error"] or len(r["pieces"]) == len(STORY.split()) for r in values["requests"])
    assert all(r["sent"] >= r["due"] for r in values["requests"])
    assert sum(one.error is not None for one in read_responses(out)) == failed
    text = capsys.readouterr().out
    assert f"{12 - failed} of 12 responses are usable" in text and "goodput: " in text


def test_a_load_on_our_own_server(
    micro_artifacts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, record = tmp_path / "out.jsonl", tmp_path / "record.json"
    with serving(micro_artifacts["dense"]) as server:
        server.scripts.texts["story"] = STORY + END
        load = ["bench", "serve", "--server", server.url, "--output", str(out)]
        load += ["--requests", "8", "--concurrency", "4", "--prompt-tokens", "300"]
        load += ["--shared-prefix", "200", "--record", str(record), "--fail-under", "100"]
        assert main(load) == 0
    found = read_responses(out)
    assert {one.text for one in found} == {STORY} and all(one.token_ids for one in found)
    values = json.loads(record.read_text())
    # Sizes in the server's own tokens, which a word is several of.
    assert all(260 <= one["prompt_counted"] <= 340 for one in values["requests"])
    assert values["figures"]["cached_tokens"] >= 4 * 128
    assert "8 of 8 responses are usable" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"streams": (0,)}, "--streams 0: must be 1..64"),
        ({"streams": (1, 65)}, "--streams 65: must be 1..64"),
        ({"max_new": 1}, "--max-new 1: must be 2 or more"),
        ({"repeats": 0}, "--repeats 0: must be 1 or more"),
    ],
)
def test_wrong_streams_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_transport(TransportOptions(**changes))
    assert str(caught.value) == message


@pytest.mark.e2e
def test_through_http_beside_in_process(
    micro_artifacts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two processes of the command write the same ids; its rates end in the audit."""
    record = tmp_path / "report.json"
    words = ["--streams", "2", "--streams", "1", "--max-new", "6", "--repeats", "1"]
    words += ["--prompt-tokens", "24", "--record", str(record), "--device", "cpu"]
    assert main(["bench", "http", str(micro_artifacts["dense"]), *words]) == 0
    report = Report.from_json(record.read_text())
    assert not report.failures
    assert [row.shape["streams"] for row in report.rows] == [1, 2]
    assert all(row.reference_name == "in-process" and row.value > 0 for row in report.rows)
    text = capsys.readouterr().out
    assert "in-process" in text and "of 6 responses are usable" in text


def test_other_ids_through_http_have_no_rate(
    micro_artifacts: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = [
        StoredResponse("load", STORY, "stop", token_ids=(1, last), usage=TokenCounts(3, 2))
        for last in (5, 6)
    ]
    direct, through = ({1: [Run(0.5, (one,))]} for one in stored)
    monkeypatch.setattr(transport, "isolated", lambda jobs, work, limit: [(jobs[0], direct, "")])
    monkeypatch.setattr(transport, "_run_served", lambda engine, options: through)
    options = TransportOptions(streams=(1,))
    found, responses = measure_transport(options, EngineOptions(micro_artifacts["dense"]))
    assert not found.rows and "other ids through HTTP" in found.failures[0]
    assert len(responses) == 2
    monkeypatch.setattr(transport, "_run_served", lambda engine, options: direct)
    found, _ = measure_transport(options, EngineOptions(micro_artifacts["dense"]))
    assert [row.share for row in found.rows] == [1.0] and found.rows[0].value == 4.0


@pytest.mark.e2e
def test_a_server_that_does_not_begin_says_why(tmp_path: Path) -> None:
    wanted = pytest.raises(ServerError, match=r"did not begin to serve: .*none.ninfer")
    with wanted, serving_process(EngineOptions(tmp_path / "none.ninfer")):
        raise AssertionError


def test_options_become_arguments_again() -> None:
    options = EngineOptions(
        Path("a.ninfer"), spec="mtp", draft_tokens=3, cuda_graph=False, vision=True
    )
    words = ["--spec", "mtp", "--draft-tokens", "3", "--vision", "--no-cuda-graph"]
    assert sorted(arguments_of(options)) == sorted(words)
    assert arguments_of(ServeLoadOptions()) == []
    assert arguments_of(TransportOptions(streams=(1, 4))) == ["--streams", "1", "--streams", "4"]
