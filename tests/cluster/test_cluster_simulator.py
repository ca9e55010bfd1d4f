"""The simulator: what can be worked out by hand, what must hold for any trace, and its size."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.cli.main import main
from ninfer.cluster.choice import AFFINITY, LEAST, RANDOM, ROUTINGS, loads_of
from ninfer.cluster.costs import Costs, line, read_costs
from ninfer.cluster.planning import Objective, Question, plan
from ninfer.cluster.prices import Prices
from ninfer.cluster.simulate import simulate
from ninfer.cluster.trace import Shape, Trace, draw, read_trace
from ninfer.errors import UsageError

COSTS = Costs(0.5, 0.01, 0.1, 0.05, 2, 10_000)


def trace_of(*rows: tuple[float, int, int, int]) -> Trace:
    arrivals, conversations, prompts, answers = zip(*rows, strict=True)
    return Trace(
        np.array(arrivals, float), np.array(conversations), np.array(prompts), np.array(answers)
    )


def test_a_request_alone_costs_its_prompt_and_its_steps():
    outcome = simulate(trace_of((3.0, 0, 100, 11)), COSTS, 1, LEAST)
    assert outcome.first_seconds.tolist() == pytest.approx([0.5 + 1.0])
    assert outcome.token_seconds.tolist() == pytest.approx([0.15])
    assert outcome.seconds == pytest.approx(1.5 + 10 * 0.15)


def test_a_prompt_stops_the_decoding_of_others_and_steps_grow_with_sequences():
    outcome = simulate(trace_of((0.0, 0, 100, 11), (2.0, 1, 50, 3)), COSTS, 1, LEAST)
    # The first begins to decode at 1.5 and has had 0.5 s at 0.15 when the second's prompt stops it
    # for 1 s; then both step at 0.2 s, the second for two tokens, and the first goes on alone.
    left = 10 - 0.5 / 0.15 - 2
    end = 3.0 + 2 * 0.2 + left * 0.15
    assert outcome.first_seconds.tolist() == pytest.approx([1.5, 1.0])
    assert outcome.token_seconds.tolist() == pytest.approx([(end - 1.5) / 10, 0.2])


def test_places_and_kv_tokens_bound_what_runs():
    three = trace_of((0.0, 0, 100, 11), (0.0, 1, 100, 11), (0.0, 2, 100, 11))
    outcome = simulate(three, COSTS, 1, LEAST)
    assert outcome.most_waiting == 1
    # The third begins when the first ends: two prompts, then ten steps of two but for the head
    # start of the first, which has none as prompts stop all.
    assert outcome.first_seconds[2] == pytest.approx(3.0 + 10 * 0.2 + 1.5)
    small = Costs(0.5, 0.01, 0.1, 0.05, 2, 200)
    assert simulate(three, small, 1, LEAST).most_waiting == 2


def test_a_turn_waits_for_the_one_before_and_is_cheaper_where_the_prefix_is():
    turns = trace_of((0.0, 0, 100, 11), (0.0, 0, 211, 2))
    outcome = simulate(turns, COSTS, 4, AFFINITY)
    assert outcome.first_seconds.tolist() == pytest.approx([1.5, 0.5 + (211 - 111) * 0.01])
    assert outcome.hit_rate == pytest.approx(111 / 311)
    assert outcome.returns == 1 and outcome.away == 0
    assert simulate(turns, COSTS, 4, LEAST).hit_rate == 0.0  # others had fewer requests


def test_prefixes_are_dropped_for_others_longest_unused_first():
    costs = Costs(0.5, 0.01, 0.1, 0.05, 2, 400)
    turns = [(10.0 * n, n % 2, 100 + 100 * (n // 2), 10) for n in range(4)]
    assert simulate(trace_of(*turns), costs, 1, AFFINITY).hit_rate > 0
    tight = Costs(0.5, 0.01, 0.1, 0.05, 2, 210)
    assert simulate(trace_of(*turns), tight, 1, AFFINITY).hit_rate == 0


def test_an_overloaded_home_is_left_and_an_idle_one_is_not():
    assert loads_of([(1, 9), (0, 0)], places=2).choose(0) == 0
    assert loads_of([(2, 9), (1, 0)], places=2).choose(0) == 0
    assert loads_of([(3, 9), (1, 0)], places=2).choose(0) == 1
    assert loads_of([(3, 9), (3, 0)], places=2).choose(0) == 0
    assert loads_of([(0, 9), (0, 3), (1, 0)], places=2).choose(None) == 1


@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from(ROUTINGS))
def test_nothing_is_lost_and_the_same_seed_gives_the_same(seed: int, replicas: int, routing: str):
    trace = draw(Shape(5.0, 3.0, 20, 10, 8, 0.5), 120, seed)
    assert len(trace) == 120 and (np.diff(trace.arrivals) >= 0).all()
    outcome = simulate(trace, COSTS, replicas, routing, seed)
    assert (outcome.first_seconds >= COSTS.prompt_seconds).all()
    assert (outcome.token_seconds[trace.answers > 1] >= COSTS.step(1) * (1 - 1e-9)).all()
    assert 0 <= outcome.hit_rate < 1 and outcome.away <= outcome.returns
    again = simulate(trace, COSTS, replicas, routing, seed)
    assert (again.first_seconds == outcome.first_seconds).all()


def test_turns_of_a_drawn_conversation_carry_what_came_before():
    trace = draw(Shape(5.0, 4.0, 50, 10, 8, 1.0), 2000, 1)
    for conversation in range(20):
        mine = trace.conversations == conversation
        prompts, answers = trace.prompts[mine], trace.answers[mine]
        assert (prompts[1:] > prompts[:-1] + answers[:-1]).all()
        assert prompts[0] > 50
    rate = len(trace) / trace.arrivals[-1]
    assert 3.5 < rate < 6.5


def test_affinity_keeps_more_than_the_others_and_needs_fewer_replicas():
    costs = Costs(0.005, 1 / 8000, 0.008, 0.0003, 32, 400_000)
    trace = draw(Shape(20.0, 5, 800, 300, 150, 20.0), 3000, 2)
    question = Question(trace, costs, Objective(0.8, 0.03, 95), 0, Prices((2.0,), endless=True))
    rows = {row.routing: row for row in plan(question, ROUTINGS, None, 64)}
    assert rows[AFFINITY].hit_rate > 0.6 > 0.4 > rows[RANDOM].hit_rate
    assert rows[AFFINITY].replicas < rows[RANDOM].replicas
    for row in rows.values():
        assert row.met and row.holds_to >= 1
        assert row.replicas == 1 or not question.meets(row.replicas - 1, row.routing)
        assert row.dollars_an_hour == 2.0 * row.replicas


def test_a_load_beyond_all_replicas_is_an_error_that_says_so():
    trace = draw(Shape(50.0, 5, 800, 300, 150, 5.0), 500, 2)
    question = Question(trace, COSTS, Objective(0.4, 0.03, 95), 0, None)
    with pytest.raises(
        UsageError, match="8 replicas do not meet the objective; raise --first-token-s"
    ):
        plan(question, (AFFINITY,), None, 8)


def test_lines_are_fitted_and_never_negative():
    assert line([(1, 3.0), (2, 5.0), (3, 7.0)]) == pytest.approx((1.0, 2.0))
    assert line([(1, 1.0), (2, 3.0)])[0] == 0.0
    assert line([(1, 3.0), (2, 2.0)]) == pytest.approx((2.5, 0.0))
    assert line([(4, 2.0), (4, 4.0)]) == pytest.approx((3.0, 0.0))


def test_files_of_costs_and_traces_are_read_and_their_faults_named(tmp_path: Path):
    costs = tmp_path / "costs.json"
    costs.write_text(COSTS.written())
    assert read_costs(costs) == COSTS
    for text, words in (
        ("{", "ninfer cluster measure"),
        ("{}", "must be an object of"),
        (COSTS.written().replace("0.01", '"x"'), "token_seconds is 'x'"),
        (COSTS.written().replace("10000", "0"), "kv_tokens is 0"),
    ):
        costs.write_text(text)
        with pytest.raises(UsageError, match=words):
            read_costs(costs)
    trace = tmp_path / "trace.csv"
    with trace.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arrival_s", "conversation", "prompt_tokens", "answer_tokens"])
        rows.writerows([[2.0, "b", 7, 1], [1.0, "a", 5, 2]])
    assert read_trace(trace).prompts.tolist() == [5, 7]
    trace.write_text(trace.read_text() + "x,c,1,1\n")
    with pytest.raises(UsageError, match="line 4"):
        read_trace(trace)
    trace.write_text("arrival_s,conversation\n")
    with pytest.raises(UsageError, match="lacks the column prompt_tokens"):
        read_trace(trace)


def test_the_command_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    costs = tmp_path / "costs.json"
    costs.write_text(Costs(0.005, 1 / 8000, 0.008, 0.0003, 32, 400_000).written())
    base = ["cluster", "plan", "--costs", str(costs), "--requests", "400", "--rate", "5"]
    assert main([*base, "--json", "--price", "1.5"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["routing"] for row in rows] == list(ROUTINGS)
    assert rows[0]["dollars_an_hour"] == 1.5 * rows[0]["replicas"]
    assert main([*base, "--replicas", "3", "--routing", AFFINITY]) == 0
    assert AFFINITY in capsys.readouterr().out
    offers = tmp_path / "offers.json"
    offers.write_text(
        '{"offers": [{"price": 3.0}, {"price": 1.0}, {"price": 1.5}], "left_out": []}'
    )
    few = [*base, "--json", "--routing", AFFINITY, "--offers", str(offers), "--replicas"]
    assert main([*few, "2"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["dollars_an_hour"] == 2.5
    assert main([*few, "4"]) == 0  # more than there are
    assert json.loads(capsys.readouterr().out)[0]["dollars_an_hour"] is None
    assert main([*few, "2", "--price", "1"]) == 2
    offers.write_text("[]")
    assert main([*few, "2"]) == 2
    assert "write it by 'ninfer offers --json'" in capsys.readouterr().err
    assert main(["cluster", "plan"]) == 2
    assert "ninfer cluster measure" in capsys.readouterr().err
    assert main([*base, "--percentile", "101"]) == 2
