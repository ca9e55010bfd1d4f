"""Figures: intervals and tests against tables, scores and differences against hand counts."""

import math

import pytest
from answers import answer_of
from suite_files import item_of

from ninfer.audit.statistics import sign_test, wilson
from ninfer.errors import UsageError
from ninfer.evals import DELTA_COLUMNS, SCORE_COLUMNS, Header, Outcome, compare, score
from ninfer.evals.acceptance import DraftCounts, TaskAcceptance, table_of
from ninfer.evals.suite import parse_item
from ninfer.request import FinishReason

HEADER = Header("mine", "abc", "a.ninfer", {}, "0.1.0")


def outcome_of(number: int, right: bool, task: str = "sums", **answer: object) -> Outcome:
    item = parse_item(item_of(number, task), "item")
    reasons = () if right else ("wrong",)
    return Outcome(item.id, item.task, item.digest, reasons, answer_of("x", **answer))


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (90, 100, 0.8256, 0.9448),
        (180, 200, 0.8506, 0.9343),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_intervals(right: int, total: int, low: float, high: float) -> None:
    assert wilson(right, total) == pytest.approx((low, high), abs=6e-5)


def test_the_interval_solves_the_score_equation() -> None:
    for right in range(1, 30):
        for end in wilson(right, 30):
            spread = math.sqrt(end * (1 - end) / 30)
            assert abs(right / 30 - end) == pytest.approx(1.959964 * spread) or end == 1


@pytest.mark.parametrize(
    ("lost", "gained", "chance"),
    [(0, 0, 1.0), (1, 0, 1.0), (0, 5, 0.0625), (1, 9, 22 / 1024), (6, 6, 1.0), (0, 2000, 0.0)],
)
def test_sign_test(lost: int, gained: int, chance: float) -> None:
    assert sign_test(lost, gained) == pytest.approx(chance)
    assert sign_test(gained, lost) == pytest.approx(chance)


def test_scores_by_task_and_over_all() -> None:
    outcomes = [outcome_of(n, n < 3, tokens=10 * (n + 1)) for n in range(4)]
    outcomes += [
        outcome_of(0, False, "look", tokens=7, finish=FinishReason.OUTPUT_LIMIT),
        outcome_of(1, True, "look", tokens=9),
    ]
    report = score(HEADER, outcomes)
    assert [task.task for task in report.tasks] == ["sums", "look"]
    sums, look = report.tasks
    assert (sums.items, sums.right, sums.natural, sums.mean_tokens) == (4, 3, 4, 25.0)
    assert (look.items, look.right, look.natural, look.mean_tokens) == (2, 1, 1, 8.0)
    assert report.overall.accuracy == pytest.approx(4 / 6)
    rows = report.rows()
    assert rows[0] == ("sums", "4", "75.0%", "30.1% .. 95.4%", "100.0%", "25.0")
    assert rows[-1][0] == "all" and len(rows) == 3
    assert all(len(row) == len(SCORE_COLUMNS) for row in rows)
    document = report.to_json()
    assert document["model"] == "abc" and document["overall"]["right"] == 4
    assert document["tasks"][0]["accuracy"] == 0.75
    with pytest.raises(UsageError, match="no item was answered"):
        score(HEADER, [])


def test_one_task_alone_has_no_line_over_all() -> None:
    assert len(score(HEADER, [outcome_of(0, True)]).rows()) == 1


def test_two_runs_are_compared_item_by_item() -> None:
    before = [outcome_of(n, n < 7) for n in range(10)] + [outcome_of(0, True, "look")]
    after = [outcome_of(n, n >= 2) for n in range(12)] + [outcome_of(0, False, "look")]
    rows = compare({o.id: o for o in before}, {o.id: o for o in after})
    sums, look, everything = rows
    assert (sums.items, sums.before, sums.after, sums.lost, sums.gained) == (10, 0.7, 0.8, 2, 3)
    assert sums.delta == pytest.approx(0.1) and sums.chance == 1.0
    assert (look.lost, look.gained, look.delta) == (1, 0, -1.0)
    assert (everything.task, everything.items, everything.lost) == ("all", 11, 3)
    assert sums.cells() == ("sums", "10", "70.0%", "80.0%", "+10.0", "2", "3", "1.000")
    assert len(DELTA_COLUMNS) == len(sums.cells())


def test_runs_of_other_items_are_not_compared() -> None:
    one = outcome_of(0, True)
    other = Outcome(one.id, one.task, "0" * 16, (), one.answer)
    with pytest.raises(UsageError, match="item sums/0 was another in the other run"):
        compare({one.id: one}, {one.id: other})
    with pytest.raises(UsageError, match="no item in common"):
        compare({one.id: one}, {})


def test_acceptance_by_source_and_position() -> None:
    later = TaskAcceptance(
        "sql", 0, 25, {"mtp": DraftCounts((20, 18), (15, 9)), "lookup": DraftCounts((4,), (4,))}
    )
    before = TaskAcceptance("sql", 0, 5, {"mtp": DraftCounts((4,), (3,))})
    sql = later.plus(before, -1)
    assert sql.passes == 20
    assert sql.sources["mtp"] == DraftCounts((16, 18), (12, 9))
    counted = TaskAcceptance("sql", 50, sql.passes, sql.sources)
    story = TaskAcceptance("story", 10, 10, {"mtp": DraftCounts((10, 0), (1, 0))})
    columns, rows = table_of([counted, story])
    assert columns[-2:] == ["#1", "#2"]
    assert rows == [
        ("sql", "50", "2.50", "mtp", "16", "75.0%", "50.0%"),
        ("sql", "50", "2.50", "lookup", "4", "100.0%", "-"),
        ("story", "10", "1.00", "mtp", "10", "10.0%", "-"),
        ("all", "60", "2.00", "mtp", "26", "50.0%", "50.0%"),
        ("all", "60", "2.00", "lookup", "4", "100.0%", "-"),
    ]
    assert table_of([TaskAcceptance("none")]) == (
        ["task", "tokens", "tokens a pass", "source", "rounds"],
        [("none", "0", "-", "none", "0")],
    )
