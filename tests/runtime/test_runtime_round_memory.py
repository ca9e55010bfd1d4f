"""What decode rounds hold is what the plan says."""

from dataclasses import replace

from safety_scene import Scene

from ninfer.runtime import RoundOptions
from ninfer.runtime.rounds.decode_rounds import _DRAFTS, MOST_ROWS
from ninfer.runtime.rounds.drafting import MOST_BEHIND
from ninfer.runtime.rounds.graphs import MOST_GRAPHS
from ninfer.runtime.rounds.lanes import LaneTable
from ninfer.runtime.workspace import (
    _BEHIND,
    _GRAPHS,
    _ROUND_ROWS,
    _WINDOWS,
    graph_bytes,
    round_bytes,
)


def test_lanes_take_what_is_planned() -> None:
    scene = Scene("mtp")
    text = scene.model.config.text
    runtime = scene.runtime(rounds=RoundOptions(0), state_slots=3)
    assert runtime.rounds is not None
    table, drafter = runtime.rounds.model.table, runtime.rounds.model.drafter
    tensors = [value for value in vars(table).values() if hasattr(value, "element_size")]
    tensors += [value for value in vars(drafter).values() if hasattr(value, "element_size")]
    held = sum(t.numel() * t.element_size() for t in tensors)
    planned = round_bytes(text, 3, 4, 512)
    # Settings of a few hundred bytes are not worth a term.
    assert planned <= held <= planned + 2048
    assert isinstance(table, LaneTable)


def test_graphs_cost_more_with_rows_context_and_sequences() -> None:
    text = Scene("mtp").model.config.text
    base = graph_bytes(text, 2, 2, 4096)
    assert base < graph_bytes(text, 2, 4, 4096) < graph_bytes(text, 4, 4, 4096)
    assert base < graph_bytes(text, 2, 2, 65_536)
    wide = replace(text, vocab_rows=2 * text.vocab_rows)
    assert base < graph_bytes(wide, 2, 2, 4096)


def test_the_plan_knows_the_limits_of_rounds() -> None:
    assert (_GRAPHS, _ROUND_ROWS) == (MOST_GRAPHS, MOST_ROWS)
    assert len(_DRAFTS) + 1 == _WINDOWS and _BEHIND == MOST_BEHIND
