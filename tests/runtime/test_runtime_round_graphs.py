"""When rounds are captured, replayed and forgotten, with a card that is made up."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from ninfer.runtime.rounds import graphs
from ninfer.runtime.rounds.graphs import MOST_GRAPHS, CudaPlayer, EagerPlayer, player_for
from ninfer.runtime.rounds.layout import Layout, RoundShape

CPU = torch.device("cpu")


class FakeCard:
    """Events, graphs and captures of torch, of which a graph replays what ran inside."""

    def __init__(self) -> None:
        self.now = 0.0
        self.capturing: list[Callable[[], None]] | None = None
        self.fails = False
        self.waits = 0
        self.captures = 0

    def play(self, layout: Layout, out: torch.Tensor) -> None:
        """A round of one second whose result counts the rounds of its shape."""

        def work() -> None:
            self.now += 1.0
            out[:, 0] += 1
            out[:, 1] = layout.shape.width

        if self.capturing is None:
            work()
        else:
            self.capturing.append(work)

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        card = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.at = -1.0

            def record(self) -> None:
                self.at = card.now

            def synchronize(self) -> None:
                assert self.at >= 0

            def elapsed_time(self, end: "Event") -> float:
                return 1e3 * (end.at - self.at)

        class Graph:
            def __init__(self) -> None:
                self.work: list[Callable[[], None]] = []

            def replay(self) -> None:
                assert self.work, "an empty graph"
                for part in self.work:
                    part()

        @contextmanager
        def capture(graph: Graph, pool: object, capture_error_mode: str) -> Iterator[None]:
            assert pool == "pool" and capture_error_mode == "thread_local"
            if card.fails:
                raise RuntimeError("operation not permitted when stream is capturing\nmore")
            card.capturing, card.captures = graph.work, card.captures + 1
            yield
            card.capturing = None

        def wait(device: torch.device) -> None:
            card.waits += 1

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", capture)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
        monkeypatch.setattr(torch.cuda, "synchronize", wait)
        monkeypatch.setattr(graphs, "pinned", torch.empty_like)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> FakeCard:
    made = FakeCard()
    made.patch(monkeypatch)
    return made


def test_a_shape_runs_once_then_it_is_captured_and_replayed(card: FakeCard) -> None:
    player = CudaPlayer(card.play, CPU, captures=True)
    shape = RoundShape(2, 3)
    played = [player.start(shape).land() for _ in range(4)]
    # A capture runs nothing, so each start is one round.
    assert [p.rows[0][:2] for p in played] == [[n, 3] for n in (1, 2, 3, 4)]
    assert [p.seconds for p in played] == [None, 1.0, 1.0, 1.0]
    assert (player.captured, player.replays, card.captures) == (1, 3, 1)


def test_a_result_is_that_of_its_own_round(card: FakeCard) -> None:
    """A round started later writes the same tensor; what an earlier one gave is safe by then."""
    player = CudaPlayer(card.play, CPU, captures=True)
    flights = [player.start(RoundShape(1, 1)) for _ in range(3)]
    assert [f.land().rows[0][0] for f in flights] == [1, 2, 3]


def test_what_was_warmed_up_is_replayed_from_the_first_round_on(card: FakeCard) -> None:
    player = CudaPlayer(card.play, CPU, captures=True)
    shapes = [RoundShape(1, 1), RoundShape(2, 1), RoundShape(1, 4)]
    player.warm_up(shapes)
    assert player.captured == 3
    for shape in shapes:
        assert player.start(shape).land().seconds == 1.0
    assert player.replays == 3


def test_after_a_failed_capture_all_runs_op_by_op(
    card: FakeCard, caplog: pytest.LogCaptureFixture
) -> None:
    player = CudaPlayer(card.play, CPU, captures=True)
    player.warm_up([RoundShape(1, 1)])
    card.fails = True
    with caplog.at_level(logging.WARNING):
        played = [player.start(RoundShape(2, 1)).land() for _ in range(3)]
    assert [p.rows[0][0] for p in played] == [1, 2, 3]
    assert [p.seconds for p in played] == [None, 1.0, 1.0], "op by op is what is typical now"
    (record,) = caplog.records
    text = record.getMessage()
    assert "2 sequences of 1 rows" in text and "--no-cuda-graph" in text and "\n" not in text
    assert player.failure == "operation not permitted when stream is capturing"
    # A graph that exists is as good as before.
    assert player.start(RoundShape(1, 1)).land().seconds == 1.0 and player.captured == 1


def test_a_failure_at_the_start_ends_the_warm_up(card: FakeCard) -> None:
    card.fails = True
    player = CudaPlayer(card.play, CPU, captures=True)
    player.warm_up([RoundShape(n, 1) for n in range(1, 9)])
    assert player.captured == 0 and card.now == 1.0


def test_without_captures_every_round_is_typical(card: FakeCard) -> None:
    player = CudaPlayer(card.play, CPU, captures=False)
    player.warm_up([RoundShape(1, 1)])
    assert player.start(RoundShape(1, 1)).land().seconds == 1.0
    assert not player.captured and not card.captures


def test_graphs_are_bounded_and_the_oldest_goes(card: FakeCard) -> None:
    player = CudaPlayer(card.play, CPU, captures=True)
    shapes = [RoundShape(n, 1) for n in range(1, MOST_GRAPHS + 1)]
    player.warm_up(shapes)
    assert player.captured == MOST_GRAPHS
    player.start(shapes[0])
    before = card.waits
    player.start(RoundShape(1, 2))
    # Its memory may be used again at once, so its last round has to be over.
    assert card.waits == before + 1
    assert player.captured == MOST_GRAPHS - 1
    assert player.start(shapes[0]).land().seconds == 1.0
    assert player.start(shapes[1]).land().seconds is None, "it was forgotten"


def test_the_player_of_a_processor_is_complete_at_once() -> None:
    card = FakeCard()
    player = player_for(card.play, CPU, captures=False)
    assert isinstance(player, EagerPlayer)
    flight = player.start(RoundShape(3, 2))
    assert card.now == 1.0
    played = flight.land()
    assert [row[:2] for row in played.rows] == [[1, 2]] * 3
    assert played.seconds is not None and played.seconds >= 0
