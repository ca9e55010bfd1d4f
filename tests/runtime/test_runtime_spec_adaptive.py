"""The adaptive window: as fast as the best fixed one, hardly slower than none, always the same."""

import random

import pytest
from spec_race import Guesser, Race, race
from spec_scene import Pool

from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative import AdaptiveWindow
from ninfer.runtime.speculative.acceptance import Acceptance
from ninfer.runtime.speculative.costs import CostCurve

TOKENS = 1500


def plain(rows: int) -> float:
    return 10 + rows


def fixed(rate: float, most: int, **rest) -> float:
    return race(lambda _: rate, adaptive=False, **rest).run(TOKENS, most)


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7, 0.9, 0.97])
@pytest.mark.parametrize("slope", [0.1, 1.0, 4.0])
def test_it_keeps_up_with_the_best_fixed_window(rate: float, slope: float) -> None:
    cost = {"cost": lambda rows: 10 + slope * rows, "draft_cost": 0.3}
    best = min(fixed(rate, most, **cost) for most in range(9))
    assert race(lambda _: rate, **cost).run(TOKENS, 8) < 1.08 * best


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_it_is_hardly_slower_than_no_drafts_where_drafts_lose(rate: float) -> None:
    """Each row costs as much as a pass: nothing below certainty pays."""
    cost = {"cost": lambda rows: 10.0 * rows, "draft_cost": 2.0}
    none = fixed(rate, 0, **cost)
    assert fixed(rate, 3, **cost) > 1.5 * none
    racing = race(lambda _: rate, **cost)
    racing.run(100)
    assert racing.run(TOKENS) < 1.02 * none


def test_e8_the_window_follows_acceptance_that_decays_with_the_context() -> None:
    """E8: a fixed depth becomes a net loss in a long context; the adaptive one does not."""

    def rate(sequence: Sequence) -> float:
        return max(0.95 - len(sequence.tokens) / 4000, 0.05)

    def costly(rows: int) -> float:
        return 10 + 2.5 * rows

    def times(racing: Race, most: int) -> list[float]:
        return [racing.run(1000, most) for _ in range(5)]

    adaptive = times(race(rate, cost=costly), 3)
    three = times(race(rate, adaptive=False, cost=costly), 3)
    none = times(race(rate, adaptive=False, cost=costly), 0)
    assert adaptive[0] < 1.05 * three[0] < 0.8 * none[0]
    assert three[4] > 1.3 * none[4]
    assert adaptive[4] < 1.02 * none[4]
    assert sum(adaptive) < 0.97 * min(sum(three), sum(none))


def test_it_comes_back_when_drafts_get_good_again() -> None:
    phase = [0.05]
    racing = race(lambda _: phase[0], cost=lambda rows: 10 + 3 * rows)
    racing.run(3000)
    assert sum(sum(w) for w in racing.windows[-100:]) < 10
    phase[0] = 0.95
    racing.run(3000)
    assert sum(sum(w) for w in racing.windows[-100:]) > 300


def test_rows_go_to_the_sequence_that_uses_them() -> None:
    racing = race(lambda s: 0.95 if s.prompt_length and s.tokens[0] == 0 else 0.1, 2)
    racing.cost = lambda rows: 10 + 2 * rows
    racing.run(800)
    late = racing.windows[-200:]
    good, bad = (sum(w[i] for w in late) / len(late) for i in range(2))
    assert good > 3.5
    assert bad < 0.5


def test_the_same_calls_give_the_same_windows() -> None:
    def windows() -> list[list[int]]:
        racing = race(lambda s: 0.2 + len(s.tokens) % 7 / 10, 3, cost=lambda rows: 10 + 2 * rows)
        racing.run(600)
        return racing.windows

    first = windows()
    assert first == windows()
    assert len({tuple(w) for w in first}) > 5


def test_windows_change_no_token() -> None:
    runs = []
    for adaptive, most in ((False, 0), (False, 5), (True, 5), (True, 15)):
        racing = race(lambda _: 0.6, 2, adaptive=adaptive)
        racing.run(400, most)
        runs.append([s.tokens[:400] for s in racing.sequences])
    assert runs[0] == runs[1] == runs[2] == runs[3]


def test_limits_bound_every_window() -> None:
    window, rng = AdaptiveWindow(), random.Random(2)
    sequences = race(lambda _: 1.0, 4).sequences
    assert window.plan([], [], []) == []
    for _ in range(300):
        limits = [rng.choice((0, 0, 1, 2, 7)) for _ in sequences]
        counts = window.plan(sequences, ["a"] * 4, limits)
        assert all(0 <= count <= limit for count, limit in zip(counts, limits, strict=True))
        window.observe_cost(4 + sum(counts), rng.uniform(9, 11))
        for s, count in zip(sequences, counts, strict=True):
            right = rng.randint(0, count)
            window.record(s, "a", right, then_wrong=right < count)


def test_without_measured_costs_every_limit_is_tried() -> None:
    sequences = race(lambda _: 1.0, 2).sequences
    assert AdaptiveWindow().plan(sequences, ["a", "b"], [3, 7]) == [3, 7]


def test_success_counts_for_its_own_source() -> None:
    window, (sequence,) = AdaptiveWindow(), race(lambda _: 1.0).sequences
    for rows in range(1, 8):
        window.observe_cost(rows, 10 + 3.0 * rows)
    plans: dict[str, list[int]] = {"good": [], "bad": []}
    for _ in range(60):
        for source, right in (("good", 4), ("bad", 0)):
            (count,) = window.plan([sequence], [source], [4])
            plans[source].append(count)
            if count:
                window.record(sequence, source, min(right, count), then_wrong=right < count)
    assert plans["good"][-1] == 4
    assert sum(plans["bad"][-16:]) <= 2


def test_one_stray_measurement_is_outvoted_and_a_lonely_one_is_forgotten() -> None:
    curve = CostCurve()
    assert not curve.is_known and curve.at(3) == 0
    for seconds in (1.0, 1.1, 50.0, 0.9, 1.0):
        curve.add(4, seconds)
    assert curve.at(4) == 1.0 and curve.at(1) == 1.0 and curve.at(9) == 1.0
    curve.add(8, 50.0)
    assert curve.at(6) == pytest.approx(25.5)
    for _ in range(600):
        curve.add(4, 1.0)
    assert curve.at(8) == 1.0


def test_costs_lie_on_lines_between_measured_sizes() -> None:
    curve, from_nothing = CostCurve(), CostCurve(from_nothing=True)
    for one in (curve, from_nothing):
        for size, seconds in ((8, 20.0), (2, 4.0), (4, 12.0)):
            one.add(size, seconds)
    assert curve.between(1, 9) == [4, 4, 8, 12, 14, 16, 18, 20, 20]
    assert curve.between(5, 6) == [14, 16] and curve.between(9, 11) == [20, 20, 20]
    assert from_nothing.between(0, 3) == [0, 2, 4, 8]


def test_a_source_that_drafts_at_a_price_gets_fewer_rows() -> None:
    window, sequences = AdaptiveWindow(), race(lambda _: 1.0, 2).sequences
    for rows in range(2, 20):
        window.observe_cost(rows, 10 + 0.5 * rows)
    for drafts in range(1, 10):
        window.observe_draft_cost("free", drafts, 0.0)
        window.observe_draft_cost("dear", drafts, 8.0 * drafts)
    for _ in range(30):
        counts = window.plan(sequences, ["free", "dear"], [5, 5])
        for s, source in zip(sequences, ("free", "dear"), strict=True):
            window.record(s, source, 1, then_wrong=True)
    assert counts[0] >= 1 and counts[1] == 0


def test_a_hiccup_in_the_first_rounds_does_not_stop_speculation_for_good() -> None:
    slow = iter([500.0] * 3)
    racing = race(lambda _: 0.9, cost=lambda rows: 10 + rows)
    usual = racing.cost
    racing.cost = lambda rows: next(slow, usual(rows))
    racing.run(3000)
    assert sum(sum(w) for w in racing.windows[-100:]) > 300


def test_rates_lean_on_the_place_before() -> None:
    acceptance = Acceptance()
    assert acceptance.rates(3, 0.7) == [0.7, 0.7, 0.7]
    for _ in range(200):
        acceptance.add(1, then_wrong=True)
    first, second, third = acceptance.rates(3, 0.7)
    assert first > 0.95 and second < 0.15 and third == second
    for _ in range(60):
        acceptance.add(3, then_wrong=False)
    assert min(acceptance.rates(3, 0.7)) > 0.8


def test_a_released_sequence_leaves_nothing() -> None:
    racing = race(lambda _: 0.5, 3)
    racing.run(50)
    window, guesser = racing.speculation._window, racing.speculation.proposer
    assert isinstance(window, AdaptiveWindow) and isinstance(guesser, Guesser)
    for sequence in racing.sequences:
        racing.speculation.release(sequence)
        racing.speculation.release(sequence)
    assert not window._histories and not racing.speculation._open and not racing.speculation._of
    assert set(guesser.released) == set(racing.sequences)


class RoundRace:
    """Device-side rounds of some sequences: one width for all, at a set cost of the round."""

    def __init__(self, rate: float, count: int = 1, *, cost: dict[int, float]) -> None:
        self.window, self.rate, self.cost = AdaptiveWindow(), rate, cost
        self.sequences = [Pool(n).sequence([n, 1, 2], 1) for n in range(count)]
        self.widths: list[int] = []
        self._random = random.Random(3)

    def run(self, rounds: int, limits: list[int] | None = None) -> float:
        """Tokens per second of so many rounds."""
        most, tokens, seconds = max(self.cost), 0, 0.0
        given = limits or [most] * len(self.sequences)
        for _ in range(rounds):
            names = ["mtp"] * len(self.sequences)
            wanted = self.window.plan_round(self.sequences, names, given, most)
            drafts = min(n for n in self.cost if n >= wanted)
            self.widths.append(drafts)
            self.window.observe_round(len(self.sequences), drafts, self.cost[drafts])
            seconds += self.cost[drafts]
            for sequence, limit in zip(self.sequences, given, strict=True):
                tried, right = min(drafts, limit), 0
                while right < tried and self._random.random() < self.rate:
                    right += 1
                if tried:
                    self.window.record(sequence, "mtp", right, then_wrong=right < tried)
                tokens += 1 + right
        return tokens / seconds


# Seconds of a round by drafts: as the roof has it for MTP beside the 27B and the 35B models.
ROUNDS = {"27b": {0: 1.0, 1: 1.08, 3: 1.25}, "35b": {0: 1.0, 1: 1.25, 3: 1.7}}


@pytest.mark.parametrize("model", ROUNDS)
@pytest.mark.parametrize("rate", [0.1, 0.2, 0.4, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("count", [1, 4])
def test_rounds_are_never_slower_than_without_drafts(model: str, rate: float, count: int) -> None:
    racing = RoundRace(rate, count, cost=ROUNDS[model])
    racing.run(64)
    plain = count / ROUNDS[model][0]
    assert racing.run(1500) > 0.98 * plain
    fixed = max(
        count * sum(rate**i for i in range(drafts + 1)) / seconds
        for drafts, seconds in ROUNDS[model].items()
    )
    assert racing.run(1500) > 0.93 * fixed


def test_rounds_measure_what_they_have_not_tried() -> None:
    racing = RoundRace(0.9, cost=ROUNDS["27b"])
    racing.run(200)
    assert {0, 3} <= set(racing.widths)
    # The round without drafts is measured from time to time, not more.
    assert racing.widths[20:].count(0) < 10


def test_lanes_without_drafts_do_not_count_for_them() -> None:
    """One of eight sequences has drafts: a wider round has to pay for all by that one."""
    cost = {0: 1.0, 1: 1.3, 3: 1.9}
    racing = RoundRace(0.95, 8, cost=cost)
    racing.run(100)
    assert racing.widths[-50:].count(3) > 30
    lonely = RoundRace(0.95, 8, cost=cost)
    lonely.run(200, limits=[3] + [0] * 7)
    assert lonely.widths[-50:].count(0) > 40


def test_rounds_of_other_sizes_are_other_costs() -> None:
    window = AdaptiveWindow()
    (one,), many = ([Pool(n).sequence([n, 1, 2], 1) for n in range(k)] for k in (1, 6))
    for drafts, seconds in ((0, 1.0), (3, 1.05)):
        window.observe_round(1, drafts, seconds)
    for drafts, seconds in ((0, 1.0), (3, 5.0)):
        window.observe_round(6, drafts, seconds)
    for _ in range(8):
        alone = window.plan_round([one], ["mtp"], [3], 3)
        together = window.plan_round(many, ["mtp"] * 6, [3] * 6, 3)
    assert (alone, together) == (3, 0)


def test_the_window_shrinks_as_the_batch_grows() -> None:
    """Rows are free while memory bounds a round, and have their price once products do."""
    means = []
    for count in (1, 4, 16, 48):
        cost = {
            drafts: max(10.0, 0.25 * count * (1 + drafts)) + 0.2 * drafts
            for drafts in (0, 1, 2, 3, 5)
        }
        racing = RoundRace(0.7, count, cost=cost)
        racing.run(300)
        late = racing.widths[-100:]
        means.append(sum(late) / len(late))
    assert means[0] > 4 and means[-1] < 1, means
    assert means == sorted(means, reverse=True), means


def test_the_same_rounds_give_the_same_windows() -> None:
    first, second = (RoundRace(0.5, 3, cost=ROUNDS["35b"]) for _ in range(2))
    first.run(300)
    second.run(300)
    assert first.widths == second.widths
