"""Speculation as the runtime sees it: outcomes read off passes, counters, combined sources."""

import pytest
from spec_race import Guesser, race
from spec_scene import Pool

from ninfer.runtime.sequence import Sequence
from ninfer.runtime.speculative import (
    AdaptiveWindow,
    CombinedProposer,
    LookupProposer,
    PositionCounts,
    Speculation,
    SpeculationCounters,
    TargetRows,
)


class Fixed:
    """Always the same drafts."""

    taps = (1, 2)

    def __init__(self, drafts: list[int]) -> None:
        self.kv_layers = {}
        self.drafts = drafts
        self.asked: list[list[int]] = []
        self.released: list[Sequence] = []

    def observe(self, rows, batch, hidden, taps) -> None:
        self.asked.append([])

    def propose(self, sequences, counts) -> list[list[int]]:
        self.asked.append(list(counts))
        return [self.drafts[:count] for count in counts]

    def source(self, sequence: Sequence) -> str:
        return "fixed"

    def release(self, sequence: Sequence) -> None:
        self.released.append(sequence)


def decoding(tokens: list[int]) -> Sequence:
    made = Pool().sequence(tokens[:-1], 1)
    made.tokens.append(tokens[-1])
    made.cached = len(tokens) - 1
    return made


def judge(speculation: Speculation, sequence: Sequence, chosen: list[int]) -> None:
    """A pass that kept the anchor and all but the last of `chosen`."""
    start = sequence.cached
    sequence.tokens.extend(chosen)
    sequence.cached += len(chosen)
    speculation.observe([TargetRows(sequence, start, 0, len(chosen), chosen[-1])], None, None, [])


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ([9], SpeculationCounters(1, 0, 3, 0, [])),
        ([1, 9], SpeculationCounters(1, 0, 3, 1, [1])),
        ([1, 2, 9], SpeculationCounters(1, 0, 3, 2, [1, 1])),
        ([1, 2, 3, 9], SpeculationCounters(1, 0, 3, 3, [1, 1, 1])),
    ],
)
def test_a_round_is_counted_from_its_pass(chosen: list[int], expected: SpeculationCounters) -> None:
    speculation, sequence = Speculation(Fixed([1, 2, 3])), decoding([5, 6, 7])
    speculation.propose([sequence], [3])
    judge(speculation, sequence, chosen)
    assert speculation.counters == expected
    assert speculation.counters_of(sequence) == expected


def test_rounds_add_up_and_rounds_without_drafts_are_fallbacks() -> None:
    speculation, one = Speculation(Fixed([1, 2, 3])), decoding([5, 6, 7])
    two = decoding([8, 9])
    for sequence, most, chosen in (
        (one, 3, [1, 2, 9]),
        (two, 0, [4]),
        (one, 1, [1, 9]),
        (two, 2, [7]),
    ):
        speculation.propose([sequence], [most])
        judge(speculation, sequence, chosen)
    assert speculation.counters == SpeculationCounters(3, 1, 6, 3, [2, 1])
    assert speculation.counters_of(one) == SpeculationCounters(2, 0, 4, 3, [2, 1])
    assert speculation.counters_of(two) == SpeculationCounters(1, 1, 2, 0, [])
    speculation.release(two)
    assert speculation.counters_of(two) == SpeculationCounters()
    assert speculation.counters.rounds == 3


def test_passes_that_judge_nothing_are_not_counted() -> None:
    """A prefill piece, a pass from another frontier, and a second pass over the same rows."""
    speculation, sequence = Speculation(Fixed([1, 2, 3])), decoding([5, 6, 7])
    speculation.observe([TargetRows(sequence, 0, 0, 2, 7)], None, None, [])
    speculation.propose([sequence], [3])
    speculation.observe([TargetRows(sequence, 0, 0, 2, 7)], None, None, [])
    speculation.observe([TargetRows(sequence, 2, 0, 1, 9)], None, None, [])
    speculation.propose([sequence], [3])
    speculation.observe([TargetRows(sequence, 2, 0, 0, 9)], None, None, [])
    assert speculation.counters == SpeculationCounters()


def test_a_cut_round_says_nothing_of_the_drafts_behind_the_cut() -> None:
    """A stop may end a round in front of right drafts; the window must not take them for wrong."""

    class Spy(AdaptiveWindow):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[int, bool]] = []

        def record(self, sequence, source, right, *, then_wrong) -> None:
            self.seen.append((right, then_wrong))

    spy = Spy()
    speculation = Speculation(Fixed([1, 2, 3]), spy)
    for chosen in ([1, 2], [1, 9], [1], [9], [1, 2, 3, 9]):
        sequence = decoding([5, 6, 7])
        speculation.propose([sequence], [3])
        judge(speculation, sequence, chosen)
    assert spy.seen == [(1, False), (1, True), (0, True), (3, False)]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ([9], PositionCounts([1, 1, 1], [0, 0, 0])),
        ([1, 9], PositionCounts([1, 1, 1], [1, 0, 0])),
        ([1, 2, 3, 9], PositionCounts([1, 1, 1], [1, 1, 1])),
        # The sequence ends by a token that was drafted: nobody knows of the drafts behind it.
        ([1], PositionCounts([1], [1])),
        ([1, 2], PositionCounts([1, 1], [1, 1])),
        ([1, 2, 3], PositionCounts([1, 1, 1], [1, 1, 1])),
    ],
)
def test_drafts_are_judged_by_position(chosen: list[int], expected: PositionCounts) -> None:
    speculation, sequence = Speculation(Fixed([1, 2, 3])), decoding([5, 6, 7])
    speculation.propose([sequence], [3])
    judge(speculation, sequence, chosen)
    assert speculation.positions == {"fixed": expected}


def test_positions_are_counted_for_each_source() -> None:
    proposer, _ = combined([91, 92, 93])
    speculation = Speculation(proposer)
    long, short = decoding([1, 2, 3, 4, 5, 6, 1, 2, 3, 4]), decoding([1, 2, 3])
    speculation.propose([long, short], [2, 3])
    judge(speculation, long, [5, 6, 9])
    judge(speculation, short, [91, 8])
    speculation.propose([short], [0])
    judge(speculation, short, [7])
    assert speculation.positions == {
        "lookup": PositionCounts([1, 1], [1, 1]),
        "fixed": PositionCounts([1, 1, 1], [1, 0, 0]),
    }


def test_the_rates_of_a_race_are_the_rates_of_its_drafts() -> None:
    racing = race(lambda _: 0.8, adaptive=False)
    racing.run(4000, 4)
    counters = racing.speculation.counters
    assert counters.drafted == 4 * counters.rounds
    survival = [right / counters.rounds for right in counters.accepted_per_position]
    assert survival == pytest.approx([0.8, 0.64, 0.512, 0.41], abs=0.04)
    assert counters.accepted == sum(counters.accepted_per_position)
    (counts,) = racing.speculation.positions.values()
    assert counts.judged == [counters.rounds] * 4
    assert counts.accepted == counters.accepted_per_position


def combined(drafts: list[int]) -> tuple[CombinedProposer, Fixed]:
    drafter = Fixed(drafts)
    return CombinedProposer(drafter, LookupProposer(), long_match=4), drafter


def test_lookup_drafts_long_matches_and_the_drafter_the_rest() -> None:
    proposer, drafter = combined([91, 92, 93])
    long, short = decoding([1, 2, 3, 4, 5, 6, 1, 2, 3, 4]), decoding([1, 2, 3, 5, 6, 1, 2, 3])
    assert proposer.propose([long, short], [2, 3]) == [[5, 6], [91, 92, 93]]
    assert drafter.asked == [[0, 3]]
    assert [proposer.source(s) for s in (long, short)] == ["lookup", "fixed"]
    assert proposer.propose([long, short], [0, 0]) == [[], []]


def test_lookup_steps_in_where_the_drafter_has_nothing() -> None:
    proposer, _ = combined([])
    short, new = decoding([1, 2, 3, 5, 6, 1, 2, 3]), decoding([1, 2, 3, 4])
    assert proposer.propose([short, new], [2, 2]) == [[5, 6], []]


def test_the_drafter_sees_every_pass_and_is_released() -> None:
    proposer, drafter = combined([1])
    sequence = decoding([1, 2, 3])
    assert proposer.taps == (1, 2)
    proposer.observe([], None, None, [])
    assert drafter.asked == [[]]
    proposer.propose([sequence], [1])
    proposer.release(sequence)
    assert drafter.released == [sequence]
    assert not proposer.lookup._indices


def test_a_guesser_of_the_race_is_asked_for_what_the_window_chose() -> None:
    racing = race(lambda _: 0.6)
    racing.run(200)
    guesser = racing.speculation.proposer
    assert isinstance(guesser, Guesser)
    assert guesser.asked == racing.windows


def test_the_time_of_drafting_counts_for_the_source_that_drafted() -> None:
    """Looked-up drafts cost next to nothing; a drafter must not look as cheap."""

    class Spy(AdaptiveWindow):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[str, int, float]] = []

        def observe_draft_cost(self, source, drafts, seconds) -> None:
            self.seen.append((source, drafts, seconds))

    spy = Spy()
    proposer, _ = combined([91, 92, 93])
    speculation = Speculation(proposer, spy)
    long, short = decoding([1, 2, 3, 4, 5, 6, 1, 2, 3, 4]), decoding([1, 2, 3])
    for sequences, seconds in (([long], 1.0), ([short, short], 2.0), ([long, short], 3.0)):
        drafts = speculation.propose(sequences, [2] * len(sequences))
        speculation.observe_draft_cost(sum(map(len, drafts)), seconds)
    # Nobody knows whose the time of the mixed round was.
    assert spy.seen == [("lookup", 2, 1.0), ("fixed", 4, 2.0)]
