"""A load on a server over HTTP: planned, sent, timed piece by piece, and judged."""

from ninfer.bench.serve.asking import Asker, Served, measured_texts, responses_of
from ninfer.bench.serve.drive import drive
from ninfer.bench.serve.figures import LoadFigures, Objective, figures_of
from ninfer.bench.serve.load import Arrival, Texts, plan_load
from ninfer.bench.serve.options import ServeLoadOptions, check_load
from ninfer.bench.serve.record import record_of

__all__ = [
    "Arrival",
    "Asker",
    "LoadFigures",
    "Objective",
    "ServeLoadOptions",
    "Served",
    "Texts",
    "check_load",
    "drive",
    "figures_of",
    "measured_texts",
    "plan_load",
    "record_of",
    "responses_of",
]
