"""Runs: concurrency, grading, errors; result files that survive being cut and go on."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from answers import answer_of
from suite_files import item_of

from ninfer.errors import GenerationError, UsageError
from ninfer.evals import Answer, Header, Item, Outcome, ResultFile, read_results, run_items
from ninfer.evals.suite import parse_item

HEADER = Header("mine", "abc", "a.ninfer", {"device": "cpu", "chat_template": None}, "0.1.0")
ITEMS = [parse_item(item_of(number), "item") for number in range(10)]


def outcome_of(item: Item, answer: Answer | None = None) -> Outcome:
    return Outcome(item.id, item.task, item.digest, (), answer or answer_of("x"))


async def right_when_even(item: Item) -> Answer:
    number = int(item.id.removeprefix("sums/"))
    # The first ones take longest, so answers end in another order than they began.
    await asyncio.sleep(0.002 * (10 - number))
    return answer_of(f"{number + 1 + number % 2}")


@pytest.mark.parametrize("concurrency", [1, 4, 64])
def test_every_item_is_answered_and_graded_once(concurrency: int) -> None:
    outcomes: list[Outcome] = []
    asyncio.run(run_items(ITEMS, right_when_even, outcomes.append, concurrency=concurrency))
    found = {outcome.id: outcome for outcome in outcomes}
    assert len(outcomes) == len(found) == 10
    assert [found[item.id].is_right for item in ITEMS] == [True, False] * 5
    assert found["sums/1"].reasons == ("3 is not 2",)
    assert all(found[item.id].digest == item.digest for item in ITEMS)


def test_as_many_at_once_as_asked_for_and_no_more() -> None:
    running, most = 0, 0

    async def answer(item: Item) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return answer_of("1")

    asyncio.run(run_items(ITEMS, answer, lambda outcome: None, concurrency=3))
    assert most == 3


def test_the_first_error_ends_the_run_and_cancels_the_rest() -> None:
    cancelled = []

    async def answer(item: Item) -> Answer:
        if item.id == "sums/1":
            raise GenerationError("logits are not finite")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(item.id)
            raise
        raise AssertionError

    with pytest.raises(GenerationError, match="not finite"):
        asyncio.run(run_items(ITEMS, answer, lambda outcome: None, concurrency=3))
    assert cancelled == ["sums/0", "sums/2"]


def test_a_cut_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Interrupted in the middle, as by Ctrl-C; the second run asks for the rest alone."""
    path, asked = tmp_path / "r.jsonl", list[str]()

    async def answer(item: Item) -> Answer:
        asked.append(item.id)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return answer_of("1")

    with ResultFile(path, HEADER) as results, pytest.raises(KeyboardInterrupt):
        asyncio.run(run_items(ITEMS, answer, results.add, concurrency=1))
    with ResultFile(path, HEADER) as results:
        rest = [item for item in ITEMS if not results.holds(item)]
        assert [item.id for item in rest] == [f"sums/{n}" for n in range(4, 10)]
        asyncio.run(run_items(rest, answer, results.add, concurrency=1))
    assert asked == [f"sums/{n}" for n in (0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9)]
    header, outcomes = read_results(path)
    assert header == HEADER
    assert list(outcomes) == [item.id for item in ITEMS]


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    call = answer_of("ünï\u2028\n", (("f", {"a": [1, {"b": None}]}),))
    outcome = replace(outcome_of(ITEMS[0], call), reasons=("wrong", "too"))
    with ResultFile(path, HEADER) as results:
        results.add(outcome)
        # In the file at once, not when it is closed.
        assert read_results(path)[1] == {"sums/0": outcome}
    line = json.loads(path.read_text(encoding="utf-8").split("\n")[1])
    assert line["right"] is False and line["answer"]["finish_reason"] == "stop_token"


@pytest.mark.parametrize("cut", [1, 2, 30, 100])
def test_a_line_that_was_cut_is_asked_for_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r.jsonl"
    with ResultFile(path, HEADER) as results:
        for item in ITEMS[:2]:
            results.add(outcome_of(item, answer_of("é" * 40)))
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    with ResultFile(path, HEADER) as results:
        assert results.holds(ITEMS[0]) and not results.holds(ITEMS[1])
        results.add(outcome_of(ITEMS[1], answer_of("é" * 40)))
    assert path.read_bytes() == data


def test_a_header_that_was_cut_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"schema": 1, "su')
    with ResultFile(path, HEADER) as results:
        results.add(outcome_of(ITEMS[0]))
    assert list(read_results(path)[1]) == ["sums/0"]


def test_an_item_that_changed_is_asked_for_again(tmp_path: Path) -> None:
    changed = parse_item(item_of(0, max_new=9), "item")
    path = tmp_path / "r.jsonl"
    with ResultFile(path, HEADER) as results:
        results.add(outcome_of(ITEMS[0]))
        assert results.holds(ITEMS[0]) and not results.holds(changed)
        results.add(outcome_of(changed))
    assert read_results(path)[1]["sums/0"].digest == changed.digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "abd"}, "results of another model (abc; now abd); give another file"),
        ({"suite": "other"}, "results of another suite (mine; now other)"),
        ({"settings": {"device": "0"}}, "results of another settings"),
        ({"ninfer": "0.2.0"}, "results of another ninfer (0.1.0; now 0.2.0)"),
    ],
)
def test_outcomes_of_another_run_are_not_mixed_in(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    path = tmp_path / "r.jsonl"
    with ResultFile(path, HEADER) as results:
        results.add(outcome_of(ITEMS[0]))
    before = path.read_bytes()
    with pytest.raises(UsageError) as caught:
        ResultFile(path, replace(HEADER, **changes))
    assert message in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "holds no results"),
        (b"\xff\n", "no result file: not UTF-8 text"),
        (b"hello\n", "no result file: line 1: not JSON"),
        (b'{"schema": 2}\n', "no result file of schema 1"),
        (b'{"schema": 1, "suite": "a"}\n', "Header must have artifact, model"),
        (b"HEADER\n[]\n", "r.jsonl:2: no outcome of an item"),
        (b'HEADER\n{"answer": {}}\n', "r.jsonl:2: no outcome of an item"),
        (b"HEADER\n{}{}\n", "r.jsonl:2: not JSON"),
    ],
)
def test_files_that_are_no_results_are_refused_and_left_alone(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "r.jsonl"
    with ResultFile(path, HEADER):
        pass
    data = data.replace(b"HEADER\n", path.read_bytes())
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_results(path)
    assert message in str(caught.value)
    if data:
        with pytest.raises(UsageError):
            ResultFile(path, HEADER)
    assert path.read_bytes() == data


def test_a_file_that_cannot_be_written_is_an_error_of_the_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--output .*: No such file or directory"):
        ResultFile(tmp_path / "none" / "r.jsonl", HEADER)
    with pytest.raises(UsageError, match="Is a directory"):
        ResultFile(tmp_path, HEADER)
