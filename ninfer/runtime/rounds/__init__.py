"""Decode rounds on the device: a whole round in one graph, the host one step behind."""

from ninfer.runtime.rounds.build import decode_rounds
from ninfer.runtime.rounds.decode_rounds import MOST_ROWS, DecodeRounds
from ninfer.runtime.rounds.graphs import MOST_GRAPHS
from ninfer.runtime.rounds.layout import RoundShape, layout_of, new_output
from ninfer.runtime.rounds.play import RoundModel, play
from ninfer.runtime.rounds.rules import PlainReason
from ninfer.runtime.rounds.sources import RoundSources

__all__ = [
    "MOST_GRAPHS",
    "MOST_ROWS",
    "DecodeRounds",
    "PlainReason",
    "RoundModel",
    "RoundShape",
    "RoundSources",
    "decode_rounds",
    "layout_of",
    "new_output",
    "play",
]
