"""Verdicts, tables and gains: what is usable, what is not and why, and which rates count."""

import math
import random
from dataclasses import replace

import pytest

from ninfer.audit import Audit, StoredResponse, Timings, TokenCounts, judge, judge_all
from ninfer.audit.record import Drafts
from ninfer.audit.statistics import paired_interval
from ninfer.audit.tables import group_row, problem_rows, spread_of
from ninfer.audit.termination import Ending, ending_of

GOOD = StoredResponse(
    "f",
    "A good answer.",
    "stop",
    category="c",
    usage=TokenCounts(10, 101),
    timings=Timings(total=3.0, first=1.0),
)


def looping(**changes: object) -> StoredResponse:
    return replace(GOOD, text="and so on " * 200, finish_reason="length", **changes)


@pytest.mark.parametrize(
    ("changes", "ending", "reason"),
    [
        ({}, Ending.NATURAL, None),
        ({"finish_reason": "stop_token"}, Ending.NATURAL, None),
        ({"finish_reason": "tool_calls", "text": "", "tool_calls": ({},)}, Ending.NATURAL, None),
        ({"stop": "###"}, Ending.STOP_STRING, None),
        ({"stop": "loop_guard"}, Ending.LOOP_GUARD, "ended by loop guard"),
        ({"finish_reason": "length"}, Ending.LIMIT, "ended by output limit"),
        (
            {"finish_reason": "length", "request": {"max_tokens": 101}},
            Ending.LIMIT,
            "ended by output limit",
        ),
        (
            {"finish_reason": "length", "request": {"max_completion_tokens": 500}},
            Ending.CONTEXT,
            "ended by context full",
        ),
        ({"finish_reason": "DEADLINE"}, Ending.DEADLINE, "ended by deadline"),
        ({"finish_reason": "cancelled"}, Ending.CANCELLED, "ended by cancelled"),
        ({"finish_reason": "content_filter"}, Ending.FILTERED, "ended by content filter"),
        ({"finish_reason": "banana"}, Ending.UNKNOWN, "ended by unknown ending"),
        ({"finish_reason": ""}, Ending.NOT_TOLD, None),
        ({"error": "503"}, Ending.ERROR, "error: 503"),
        ({"text": " \n"}, Ending.NATURAL, "no answer"),
        ({"text": "", "reasoning": "hm"}, Ending.NATURAL, "no answer: all of it was thinking"),
        ({"contract": {"kind": "text", "equals": "B"}}, Ending.NATURAL, "is not 'B'"),
    ],
)
def test_endings_and_verdicts(changes: dict, ending: Ending, reason: str | None) -> None:
    verdict = judge(replace(GOOD, **changes))
    assert verdict.ending is ending
    if reason is None:
        assert verdict.usable and verdict.word == "usable", verdict.reasons
    else:
        assert len(verdict.reasons) == 1 and reason in verdict.reasons[0]


def test_the_gravest_word_stands_first() -> None:
    verdict = judge(looping(contract={"kind": "text", "contains": ["x"]}))
    assert verdict.word == "LOOP" and len(verdict.reasons) == 3
    assert judge(replace(GOOD, finish_reason="length")).word == "output limit"
    assert judge(replace(GOOD, text="")).word == "empty"
    assert judge(replace(GOOD, contract={"kind": "text", "equals": "B"})).word == "contract broken"


def test_code_is_not_run_where_that_is_not_wanted() -> None:
    contract = {
        "kind": "all",
        "of": [
            {
                "kind": "code",
                "language": "python",
                "files": ["a.py"],
                "run": ["t.py"],
                "tests": {
                    "t.py": "import unittest\nclass T(unittest.TestCase):\n  def test(self): 0"
                },
            }
        ],
    }
    response = replace(GOOD, text="```python\nx = 1\n```", contract=contract)
    assert judge(response).usable
    assert judge(response, run_code=False).reasons == ("its tests were not run (--no-run-code)",)


def test_rates_of_loops_stand_apart() -> None:
    fast = looping(timings=Timings(total=1.1, first=1.0))
    row = group_row("g", judge_all([GOOD, replace(GOOD, timings=Timings(5.0, 1.0)), fast]))
    assert (row.responses, row.usable, row.loops, row.whole) == (3, 2, 1, 2)
    assert row.rate is not None and row.rate.mean == pytest.approx((50 + 25 + 1000) / 3)
    assert row.usable_rate is not None and row.usable_rate.mean == 37.5
    assert row.usable_rate.deviation == pytest.approx(math.sqrt(2 * 12.5**2))
    assert row.usable_per_second == pytest.approx(202 / 9.1)
    assert "(1 loops in it)" in row.cells()[6]
    (problem,) = problem_rows(judge_all([GOOD, fast]))
    assert problem[1] == "LOOP" and problem[3] == "[1000.0, a loop]"
    assert "loop in the text: 6 tokens" in problem[4]


def test_a_stream_that_came_at_once_has_no_rate() -> None:
    assert replace(GOOD, pieces=((1.0, 5), (2.0, 14))).decode_rate == 50
    held = replace(GOOD, pieces=((2.9, 10), (3.0, 14)))
    assert held.decode_rate is None
    assert replace(held, timings=Timings(3.0, 2.9, decode=2.0)).decode_rate == 50
    row = group_row("g", judge_all([held]))
    assert row.rate is None and row.usable_per_second == pytest.approx(101 / 3)


def test_an_audit_has_a_row_for_all() -> None:
    other = replace(GOOD, category="d", contract={"kind": "text", "equals": "B"})
    audit = Audit(judge_all([GOOD, other]))
    assert [row.name for row in audit.rows] == ["c", "d", "all"]
    assert audit.sentence == "1 of 2 responses are usable; 1 contract broken"
    values = audit.to_json()
    assert values["usable_share"] == 0.5 and values["groups"][1]["kept"] == 0
    assert Audit(judge_all([GOOD])).sentence == "1 of 1 responses are usable"
    assert [row.name for row in Audit(judge_all([GOOD]), "fixture").rows] == ["f"]


def seeded(
    mode: str, seed: int, rate: float, text: str = "ok", **changes: object
) -> StoredResponse:
    times = Timings(total=100 / rate, first=0.0)
    given = {"drafts": Drafts(50, 100, 60), **changes}
    return replace(GOOD, mode=mode, seed=seed, timings=times, text=text, **given)


def test_gains_are_of_usable_pairs_only() -> None:
    plain = [seeded("plain", seed, 10.0 + seed, drafts=None) for seed in range(5)]
    drafted = [seeded("mtp3", seed, 2 * (10.0 + seed)) for seed in range(5)]
    drafted[4] = replace(looping(), mode="mtp3", seed=4, timings=Timings(0.01, 0.0))
    audit = Audit(judge_all([*plain, *drafted]))
    (gain,) = audit.gains
    assert (gain.first, gain.second, gain.pairs, gain.both) == ("plain", "mtp3", 5, 4)
    assert (gain.only_first, gain.only_second, gain.same) == (1, 0, 4)
    assert gain.ratio is not None and gain.ratio.middle == pytest.approx(2.0)
    assert gain.ratio.chance == pytest.approx(2 / 16)
    assert gain.second_acceptance == pytest.approx(0.6) and gain.first_acceptance is None
    assert gain.cells()[7] == "2.00x"


def test_intervals_hold_what_they_say() -> None:
    assert paired_interval([]) is None
    alone = paired_interval([0.5])
    assert alone is not None and (alone.low, alone.high, alone.chance) == (0.5, 0.5, 1.0)
    draw, inside, small = random.Random(5), 0, 0
    for _ in range(200):
        found = paired_interval([draw.gauss(0.3, 1.0) for _ in range(30)])
        null = paired_interval([draw.gauss(0.0, 1.0) for _ in range(30)])
        assert found is not None and null is not None
        inside += found.low <= 0.3 <= found.high
        small += null.chance <= 0.05
    assert 176 <= inside <= 200 and small <= 22
    assert spread_of([None, 2.0]) is not None and spread_of([None]) is None


def test_words_of_endings_are_those_of_this_engine() -> None:
    from ninfer.request import FinishReason

    for reason in FinishReason:
        assert ending_of(replace(GOOD, finish_reason=str(reason))) is not Ending.UNKNOWN
